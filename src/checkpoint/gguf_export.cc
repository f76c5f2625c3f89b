#include "checkpoint/gguf_export.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/ecosystem.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/gguf_config.h"
#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/gguf.h"
#include "io/text.h"

namespace halfbyte {

namespace {

// Types of tensors, and the numbers that general.file_type has for files mostly of them.
struct TypeRow {
  std::string_view name;
  std::uint32_t file_type;
};
constexpr TypeRow kTypes[] = {{"F32", 0},   {"F16", 1},    {"Q4_0", 2},  {"Q8_0", 7},
                              {"BF16", 32}, {"MXFP4", 38}, {"NVFP4", 39}};

const GgmlType& ggml_type(std::string_view name) {
  return *std::ranges::find(kGgmlTypes, name, &GgmlType::name);
}

bool is_layer_matrix(const std::string& name, const Shape& shape) {
  return shape.size() == 2 && name.starts_with("model.layers.");
}

// One tensor of the file, and where it comes from.
struct Slot {
  std::string name;  // in the folder
  GgufName gguf;
  const GgmlType* type = nullptr;
  Shape shape;
};

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const GgufExportOptions& options)
      : checkpoint_(checkpoint), options_(options) {
    target_ = gguf_model_keys(checkpoint, keys_);
    for (const std::string& name : checkpoint.names()) add(name);
  }

  GgufExport run(const std::filesystem::path& file,
                 const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
    std::vector<GgufTensorSpec> specs;
    std::vector<std::pair<std::string, float>> scales;
    for (const Slot& slot : slots_) {
      specs.push_back({slot.gguf.name, slot.type->id, slot.shape});
      if (slot.type->name != "NVFP4") continue;
      scales.emplace_back(slot.gguf.name.substr(0, slot.gguf.name.rfind('.')) + ".scale", factor(slot.name));
      specs.push_back({scales.back().first, ggml_type("F32").id, {1}});
    }
    if (!target_.rope_divisors.empty())
      specs.push_back({"rope_freqs.weight", ggml_type("F32").id, {target_.head_dim / 2}});
    keys_.emplace_back("general.quantization_version", std::uint32_t{2});
    keys_.emplace_back("general.file_type", file_type());
    gguf_tokenizer_keys(checkpoint_, target_.vocab, keys_, result_.notes);

    GgufWriter writer(file, keys_, std::move(specs));
    for (const auto& [name, scale] : scales) writer.append(name, std::as_bytes(std::span(&scale, 1)));
    if (!target_.rope_divisors.empty())
      writer.append("rope_freqs.weight", std::as_bytes(std::span(target_.rope_divisors)));
    for (const Slot& slot : slots_) {
      write(slot, writer);
      checkpoint_.drop(slot.name);
      if (progress) progress(++result_.tensors, static_cast<std::int64_t>(slots_.size()));
    }
    writer.finish();
    result_.tensors = static_cast<std::int64_t>(slots_.size());
    result_.bytes = writer.file_bytes();
    return std::move(result_);
  }

 private:
  void add(const std::string& name) {
    if (name.ends_with("rotary_emb.inv_freq")) return;  // of old exports; follows from the keys
    const auto gguf = find_gguf_name(name);
    if (!gguf)
      fail(ErrorKind::unsupported, "{}: {} has no place in a GGUF file of the architecture {}",
           checkpoint_.files().path(), quote(name), target_.arch);
    Slot slot{.name = name, .gguf = *gguf, .shape = checkpoint_.shape(name)};
    slot.gguf.interleaved = gguf->interleaved && target_.arch == "llama";
    if (slot.gguf.interleaved && (slot.shape.empty() || slot.shape[0] % target_.head_dim != 0))
      fail_input("{}: {} has shape {}, expected heads of {} rows", checkpoint_.files().path(), quote(name),
                 to_string(slot.shape), target_.head_dim);
    slot.type = checkpoint_.is_quantized(name) ? quantized_type(name) : &plain_type(slot);
    if (slot.shape.empty() || slot.shape.back() % slot.type->block_values != 0)
      fail(ErrorKind::unsupported,
           "{} has shape {}, but {} needs rows of a multiple of {}; keep that layer as it is", quote(name),
           to_string(slot.shape), slot.type->name, slot.type->block_values);
    slots_.push_back(std::move(slot));
  }

  const GgmlType* quantized_type(const std::string& name) const {
    const HalfbyteQuantization& quantization = checkpoint_.quantization();
    const QuantizedInfo& info = quantization.tensors.find(name)->second;
    if (info.spec.format != Format::nvfp4 && info.spec.format != Format::mxfp4)
      fail(ErrorKind::unsupported, "{} is {}, but only nvfp4 and mxfp4 are written to GGUF as they are",
           quote(name), to_string(info.spec));
    const auto input = quantization.inputs.find(info.input);
    if (input != quantization.inputs.end() && changes_columns(input->second))
      fail(ErrorKind::unsupported, "{} reads an input that {} changes, which llama.cpp does not do",
           quote(name), quote(input->second.method));
    if (const auto& activations = quantization.activations_of(info); activations && !options_.weights_only)
      fail(ErrorKind::unsupported,
           "{}: its input is rounded to {}, but llama.cpp rounds in its own way; --weights-only leaves that "
           "out",
           quote(name), to_string(*activations));
    return &ggml_type(info.spec.format == Format::nvfp4 ? "NVFP4" : "MXFP4");
  }

  const GgmlType& plain_type(const Slot& slot) const {
    const DType dtype = checkpoint_.dtype(slot.name);
    if (!is_source_dtype(dtype))
      fail(ErrorKind::unsupported, "{}: {} is {}, expected F32, BF16 or F16", checkpoint_.files().path(),
           quote(slot.name), dtype_name(dtype));
    if (slot.shape.size() != 2) return ggml_type("F32");
    if (is_layer_matrix(slot.name, slot.shape)) {
      if (options_.linears == GgufLinears::q8_0) return ggml_type("Q8_0");
      if (options_.linears == GgufLinears::q4_0) return ggml_type("Q4_0");
    }
    return ggml_type(dtype_name(dtype));
  }

  // What multiplies the values of an NVFP4 tensor.
  float factor(const std::string& name) const {
    const QuantizedTensor tensor = checkpoint_.quantized(name);
    return convert_global_scale(tensor.spec.global_scale, tensor.global_scale, false, options_.allow_rounding,
                                name);
  }

  // The type of most layers.
  std::uint32_t file_type() const {
    std::uint32_t type = 0;
    for (const Slot& slot : slots_)
      if (is_layer_matrix(slot.name, slot.shape))
        type = std::ranges::find(kTypes, slot.type->name, &TypeRow::name)->file_type;
    return type;
  }

  // The folder's row that becomes that row of the file.
  std::int64_t source_row(const Slot& slot, std::int64_t row) const {
    if (!slot.gguf.interleaved) return row;
    const std::int64_t half = target_.head_dim / 2, head = row / target_.head_dim,
                       place = row % target_.head_dim;
    return head * target_.head_dim + place % 2 * half + place / 2;
  }

  void write(const Slot& slot, GgufWriter& writer) const {
    const std::int64_t rows = slot.shape.size() == 2 ? slot.shape[0] : 1, columns = slot.shape.back();
    const bool vector = slot.shape.size() != 2;
    const std::int64_t row_bytes = columns / slot.type->block_values * slot.type->block_bytes;
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * row_bytes));
    std::optional<QuantizedTensor> quantized;
    if (checkpoint_.is_quantized(slot.name)) quantized = checkpoint_.quantized(slot.name);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto out = std::span(bytes).subspan(static_cast<std::size_t>(row * row_bytes),
                                                static_cast<std::size_t>(row_bytes));
      if (quantized)
        pack(*quantized, source_row(slot, row), out);
      else
        encode(slot, vector ? 0 : source_row(slot, row), out);
    }
    writer.append(slot.gguf.name, bytes);
  }

  static void pack(const QuantizedTensor& tensor, std::int64_t row, std::span<std::byte> out) {
    const auto part = [&](const Array<std::uint8_t>& values) {
      const auto size = static_cast<std::size_t>(values.size() / tensor.shape[0]);
      return values.span().subspan(static_cast<std::size_t>(row) * size, size);
    };
    if (tensor.spec.format == Format::nvfp4)
      pack_nvfp4_row(part(tensor.codes), part(tensor.scales8), out);
    else
      pack_mxfp4_row(part(tensor.codes), part(tensor.scales8), out);
  }

  void encode(const Slot& slot, std::int64_t row, std::span<std::byte> out) const {
    const TensorView& view = *checkpoint_.plain(slot.name);
    const std::int64_t columns = slot.shape.back();
    if (slot.type->name == dtype_name(view.dtype) && slot.shape.size() == 2) {
      std::ranges::copy(view.data.subspan(static_cast<std::size_t>(row) * out.size(), out.size()),
                        out.begin());
      return;
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < columns; ++i) {
      // Biases of interleaved rows are interleaved too.
      const std::int64_t place = slot.shape.size() == 2 ? row * columns + i : source_row(slot, i);
      values.push_back(load_element(view.dtype, view.data.data(), place));
      if (!std::isfinite(values.back()))
        fail_input("{}: {} holds {} at {}; the weights are damaged", checkpoint_.files().path(),
                   quote(slot.name), values.back(), place);
    }
    if (slot.type->name == "Q4_0")
      encode_q4_0_row(values, out);
    else if (slot.type->name == "Q8_0")
      encode_q8_0_row(values, out);
    else
      std::ranges::copy(std::as_bytes(std::span(values)), out.begin());
  }

  const Checkpoint& checkpoint_;
  const GgufExportOptions& options_;
  GgufKeys keys_;
  GgufTarget target_;
  std::vector<Slot> slots_;
  GgufExport result_;
};

}  // namespace

std::optional<GgufLinears> find_gguf_linears(std::string_view name) {
  if (name == "bf16") return GgufLinears::as_they_are;
  if (name == "q8_0") return GgufLinears::q8_0;
  if (name == "q4_0") return GgufLinears::q4_0;
  return std::nullopt;
}

GgufExport export_gguf(const Checkpoint& checkpoint, const std::filesystem::path& file,
                       const GgufExportOptions& options,
                       const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  return Exporter(checkpoint, options).run(file, progress);
}

}  // namespace halfbyte
