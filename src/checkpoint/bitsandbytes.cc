// bitsandbytes' 4-bit checkpoints (NF4, FP4, with and without double quantization), as transformers saves and loads them.
//   P.weight            U8 [ceil(n / 2), 1], high nibble first; n and the shape stand only in the state
//   P.weight.absmax     F32 [blocks], or U8 with double quantization
//   P.weight.quant_map  F32 [16], the levels: they must be those of formats/nf4.h or fp4.h
//   P.weight.nested_absmax F32 [ceil(blocks / 256)], P.weight.nested_quant_map F32 [256]   (double quantization)
//   P.weight.quant_state.bitsandbytes__nf4 (or __fp4)   U8, JSON
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "formats/fp4.h"
#include "formats/nf4.h"
#include "io/bnb_tensor.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kDTypeNames[][2] = {{"F32", "float32"}, {"BF16", "bfloat16"}, {"F16", "float16"}};

std::string_view torch_name(DType dtype) {
  for (const auto& [ours, theirs] : kDTypeNames)
    if (ours == dtype_name(dtype)) return theirs;
  return "float32";
}

std::string state_name(const std::string& name, const QuantSpec& spec) {
  return name + std::string(kBnbState) + std::string(format_name(spec.format));
}

std::vector<std::string> parts(const std::string& name, const QuantizedInfo& info,
                               const InputInfo* /*input*/) {
  std::vector<std::string> names{name, name + ".absmax", name + ".quant_map", state_name(name, info.spec)};
  if (info.spec.double_quant) {
    names.push_back(name + ".nested_absmax");
    names.push_back(name + ".nested_quant_map");
  }
  return names;
}

std::array<float, 16> levels(Format format) {
  std::array<float, 16> values{};
  for (std::uint8_t code = 0; code < 16; ++code)
    values[code] = format == Format::nf4 ? nf4_decode(code) : fp4_decode(code);
  return values;
}

void check_map(const SafetensorsModel& files, const std::string& owner, const std::string& name,
               std::span<const float> expected) {
  part_of(files, owner, name, DType::f32, {static_cast<std::int64_t>(expected.size())});
  const TensorView& map = files.at(name);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (load<float>(map.data.data(), static_cast<std::int64_t>(i)) != expected[i])
      fail(ErrorKind::unsupported,
           "{}: {} holds {} at {}, expected {}: levels other than bitsandbytes' own are not read",
           files.path(), quote(name), load<float>(map.data.data(), static_cast<std::int64_t>(i)), i,
           expected[i]);
}

QuantizedInfo parse_state(const SafetensorsModel& files, const std::string& name, const std::string& key) {
  const std::string where = files.path() + ": " + quote(key);
  const BnbState state = parse_bnb_state(files.at(key), where);
  QuantizedInfo info{.spec = {.format = state.quant_type == "nf4" ? Format::nf4 : Format::fp4,
                              .block_size = state.block,
                              .double_quant = state.nested},
                     .shape = state.shape};
  if (key != state_name(name, info.spec))
    fail_input("{}: its quant_type is {}, expected what its name ends in", where, quote(state.quant_type));
  if (state.nested && state.group != kDynamic8Group)
    fail(ErrorKind::unsupported, "{}: nested_blocksize is {}, only {} is read", where, state.group,
         kDynamic8Group);
  bool known = false;
  for (const auto& [ours, theirs] : kDTypeNames)
    if (theirs == state.dtype) {
      info.source = *dtype_from_name(ours);
      known = true;
    }
  if (!known)
    fail_input("{}: dtype is {}, expected \"bfloat16\", \"float16\" or \"float32\"", where,
               quote(state.dtype));
  return info;
}

void check_parts_of(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info) {
  const PartSizes sizes = part_sizes(info.spec, info.shape);
  const TensorView& codes = part_of(files, name, name);
  // Other storage types (bnb_4bit_quant_storage) are views of the same bytes.
  if (codes.elements() * dtype_bytes(codes.dtype) != sizes.codes || codes.shape.size() != 2)
    fail_input("{}: {} is {} {}, expected {} bytes as a column for the shape {} in its state", files.path(),
               quote(name), dtype_name(codes.dtype), to_string(codes.shape), sizes.codes,
               to_string(info.shape));
  part_of(files, name, name + ".absmax", info.spec.double_quant ? DType::u8 : DType::f32, {sizes.blocks});
  check_map(files, name, name + ".quant_map", levels(info.spec.format));
  if (!info.spec.double_quant) return;
  part_of(files, name, name + ".nested_absmax", DType::f32, {sizes.nested_absmax});
  check_map(files, name, name + ".nested_quant_map", kDynamic8Map);
}

HalfbyteQuantization parse(const Json&, const Json& quantization, const std::string& where,
                           const SafetensorsModel& files) {
  if (!json_optional_bool(quantization, "load_in_4bit", where).value_or(false))
    fail(ErrorKind::unsupported,
         "{}: load_in_4bit is not set; 8-bit checkpoints of bitsandbytes are not read", where);
  HalfbyteQuantization result;
  std::set<std::string> used;
  for (const std::string& key : files.names()) {
    const std::size_t at = key.find(kBnbState);
    if (at == std::string::npos) continue;
    const std::string name = key.substr(0, at);
    const QuantizedInfo info = parse_state(files, name, key);
    check_parts_of(files, name, info);
    if (!result.tensors.emplace(name, info).second)
      fail_input("{}: {} has two states, nf4 and fp4", files.path(), quote(name));
    for (std::string& part : parts(name, info, nullptr)) used.insert(std::move(part));
  }
  if (result.tensors.empty())
    fail_input("{}: holds no 4-bit weight of bitsandbytes although {} says so", files.path(), where);
  constexpr std::string_view kSuffixes[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
                                            ".SCB"};
  refuse_unused(files, used, kSuffixes);
  return result;
}

QuantizedTensor read(const SafetensorsModel& files, const std::string& name, const QuantizedInfo& info,
                     const InputInfo* /*input*/) {
  QuantizedTensor tensor = make_quantized(info.spec, info.shape, info.source);
  copy_bytes(files.at(name), std::as_writable_bytes(tensor.codes.span()));
  const TensorView& absmax = files.at(name + ".absmax");
  if (!info.spec.double_quant) {
    copy_bytes(absmax, std::as_writable_bytes(tensor.scales.span()));
    check_f32_scales(files, name + ".absmax", tensor.scales.span());
    return tensor;
  }
  copy_bytes(absmax, std::as_writable_bytes(tensor.scales8.span()));
  copy_bytes(files.at(name + ".nested_absmax"), std::as_writable_bytes(tensor.nested_absmax.span()));
  check_f32_scales(files, name + ".nested_absmax", tensor.nested_absmax.span());
  const std::string key = state_name(name, info.spec), where = files.path() + ": " + quote(key);
  tensor.offset = parse_bnb_state(files.at(key), where).offset;
  if (!std::isfinite(tensor.offset)) fail_input("{}: nested_offset is {}", where, tensor.offset);
  return tensor;
}

// A float32 as Python prints it once widened: the shortest decimal of the double, never without a point.
std::string python_float(float value) {
  std::string text = fmt::format("{}", static_cast<double>(value));
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// The state in the package's own spelling and order, so that files come out equal byte for byte.
std::string state_json(const QuantizedTensor& tensor) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape)
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  std::string json = fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}])",
                                 format_name(tensor.spec.format), effective_block(tensor.spec, 0),
                                 torch_name(tensor.source), shape);
  if (tensor.spec.double_quant)
    json += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                        kDynamic8Group, python_float(tensor.offset));
  return json + "}";
}

std::vector<StoredTensor> store(const std::string& name, const QuantizedTensor& tensor,
                                const StoreContext& context) {
  require_format(tensor, name, kBitsandbytes, {Format::nf4, Format::fp4});
  if (context.activations)
    fail(ErrorKind::unsupported,
         "{}: its input is rounded to {}, but bitsandbytes rounds weights only; --weights-only "
         "leaves that out",
         quote(name), to_string(*context.activations));
  const std::array<float, 16> map = levels(tensor.spec.format);
  const std::string state = state_json(tensor);
  std::vector<StoredTensor> parts;
  parts.push_back(stored(name, DType::u8, {tensor.codes.size(), 1}, tensor.codes.as_bytes()));
  if (tensor.spec.double_quant) {
    parts.push_back(stored(name + ".absmax", DType::u8, {tensor.scales8.size()}, tensor.scales8.as_bytes()));
    parts.push_back(stored(name + ".nested_absmax", DType::f32, {tensor.nested_absmax.size()},
                           tensor.nested_absmax.as_bytes()));
    parts.push_back(
        stored(name + ".nested_quant_map", DType::f32, {256}, std::as_bytes(std::span(kDynamic8Map))));
  } else {
    parts.push_back(stored(name + ".absmax", DType::f32, {tensor.scales.size()}, tensor.scales.as_bytes()));
  }
  parts.push_back(stored(name + ".quant_map", DType::f32, {16}, std::as_bytes(std::span(map))));
  parts.push_back(stored(state_name(name, tensor.spec), DType::u8, {static_cast<std::int64_t>(state.size())},
                         std::as_bytes(std::span(state))));
  return parts;
}

Json config(const EcosystemConfig& model) {
  const QuantSpec& spec = model.quantization.tensors.begin()->second.spec;
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_quant_type", format_name(spec.format)},
          {"bnb_4bit_use_double_quant", spec.double_quant},
          {"bnb_4bit_compute_dtype", torch_name(model.dtype)},
          {"bnb_4bit_quant_storage", "uint8"},
          {"llm_int8_threshold", 6.0},
          {"llm_int8_skip_modules", model.kept},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false}};
}

}  // namespace

const Ecosystem kBitsandbytes{"bitsandbytes", parse, parts, read, store, config};

}  // namespace halfbyte
