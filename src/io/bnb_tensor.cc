// Finds and checks a bitsandbytes 4-bit weight in a safetensors file.
#include "io/bnb_tensor.h"

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"

namespace halfbyte {

namespace {

// "a.weight" of "a.weight.quant_state.bitsandbytes__nf4", or nothing.
std::string_view stem_of(std::string_view tensor) {
  const std::size_t at = tensor.find(kBnbState);
  return at == std::string_view::npos ? std::string_view{} : tensor.substr(0, at);
}

TensorView part(const SafetensorsFile& file, const std::string& name, DType dtype, std::int64_t elements) {
  const TensorView& view = file.at(name);
  if (view.dtype != dtype || view.elements() != elements)
    fail_input("{}: \"{}\" is {} {}, expected {} values of {}", file.path(), name, dtype_name(view.dtype),
               to_string(view.shape), elements, dtype_name(dtype));
  return view;
}

std::int64_t block_size(const Json& state, std::string_view key, const std::string& where) {
  const std::int64_t size = json_int64(state, key, where);
  if (size < 32 || size > 4096 || (size & (size - 1)))
    fail_input("{}: {} is {}, expected a power of two from 32 to 4096", where, key, size);
  return size;
}

}  // namespace

BnbState parse_bnb_state(const TensorView& bytes, const std::string& where) {
  if (bytes.dtype != DType::u8) fail_input("{}: is {}, expected U8", where, dtype_name(bytes.dtype));
  const Json json = parse_json({reinterpret_cast<const char*>(bytes.data.data()), bytes.data.size()}, where);
  BnbState state;
  state.quant_type = json_string(json, "quant_type", where);
  if (state.quant_type != "nf4" && state.quant_type != "fp4")
    fail_input("{}: quant_type is \"{}\", expected \"nf4\" or \"fp4\"", where, state.quant_type);
  state.dtype = json_optional_string(json, "dtype", where).value_or("");
  state.block = block_size(json, "blocksize", where);
  for (const Json& extent : json_array(json, "shape", where)) {
    if (!extent.is_number_integer()) fail_input("{}: shape holds something that is no integer", where);
    state.shape.push_back(extent.get<std::int64_t>());
  }
  const auto elements = checked_count(state.shape);
  if (!elements || *elements == 0) fail_input("{}: shape {} is no tensor", where, to_string(state.shape));
  state.nested = json_find(json, "nested_blocksize") != nullptr;
  if (state.nested) {
    state.group = block_size(json, "nested_blocksize", where);
    state.offset = static_cast<float>(json_double(json, "nested_offset", where));
  }
  return state;
}

BnbTensor read_bnb_tensor(const SafetensorsFile& file, std::string_view name) {
  BnbTensor tensor;
  std::string state_name, found;
  for (const NamedTensor& entry : file.tensors()) {
    const std::string_view stem = stem_of(entry.name);
    if (stem.empty() || (!name.empty() && stem != name)) continue;
    if (!state_name.empty())
      fail_input("{}: holds several 4-bit weights, among them \"{}\" and \"{}\"; choose one with --tensor",
                 file.path(), tensor.name, stem);
    tensor.name = stem;
    state_name = entry.name;
  }
  if (state_name.empty())
    fail_input("{}: no 4-bit weight of bitsandbytes{} (a tensor \"....quant_state.bitsandbytes__nf4\")",
               file.path(), name.empty() ? "" : fmt::format(" named \"{}\"", name));
  const std::string where = fmt::format("{}: \"{}\"", file.path(), state_name);
  static_cast<BnbState&>(tensor) = parse_bnb_state(file.at(state_name), where);
  const std::int64_t elements = count(tensor.shape);
  const std::int64_t blocks = ceil_div(elements, tensor.block);
  tensor.codes = part(file, tensor.name, DType::u8, ceil_div(elements, 2));
  tensor.absmax = part(file, tensor.name + ".absmax", tensor.nested ? DType::u8 : DType::f32, blocks);
  tensor.quant_map = part(file, tensor.name + ".quant_map", DType::f32, 16);
  if (tensor.nested) {
    tensor.nested_absmax =
        part(file, tensor.name + ".nested_absmax", DType::f32, ceil_div(blocks, tensor.group));
    tensor.nested_map = part(file, tensor.name + ".nested_quant_map", DType::f32, 256);
  }
  return tensor;
}

}  // namespace halfbyte
