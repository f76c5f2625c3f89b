#include "checkpoint/export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "io/sharded_writer.h"
#include "io/text.h"

namespace halfbyte {

namespace {

struct FormatRow {
  ExportFormat format;
  std::string_view name;
  const Ecosystem* ecosystem;  // null: halfbyte's own
};

constexpr FormatRow kFormatRows[] = {
    {ExportFormat::halfbyte, "halfbyte", nullptr},
    {ExportFormat::bitsandbytes, "bitsandbytes", &kBitsandbytes},
    {ExportFormat::compressed_tensors, "compressed-tensors", &kCompressedTensors},
    {ExportFormat::halfbyte_arc, "halfbyte-arc", &kHalfbyteArc},
    {ExportFormat::modelopt, "modelopt", &kModelopt}};

bool is_kv_scale(const std::string& name) { return name.ends_with(".k_scale") || name.ends_with(".v_scale"); }

HalfbyteQuantization without_activations(HalfbyteQuantization quantization) {
  quantization.activations.reset();
  for (auto& [name, info] : quantization.tensors) {
    info.own_activations = false;
    info.activations.reset();
    const InputInfo* input = input_of(quantization, info);
    if (input && input->residual)
      fail(ErrorKind::unsupported,
           "{}: its input has residual channels, which make good what rounding it lost; without activations "
           "they are for nothing",
           quote(name));
    if (input && !changes_columns(*input)) info.input.clear();
  }
  std::erase_if(quantization.inputs, [](const auto& input) { return !changes_columns(input.second); });
  for (auto& [name, input] : quantization.inputs) input.global_scale = 0.0f;
  return quantization;
}

HalfbyteQuantization exported(const HalfbyteQuantization& quantization, const ExportOptions& options) {
  return options.weights_only ? without_activations(quantization) : quantization;
}

// Whether these checkpoints can say what has to be done to that input.
bool fits(const InputInfo& input, const Ecosystem& ecosystem) {
  return ecosystem.input ? gathers_only(input) : !changes_columns(input);
}

// What no other engine can run, in whatever layout.
void check_for_ecosystem(const HalfbyteQuantization& quantization, const Ecosystem& ecosystem) {
  const QuantizedInfo& first = quantization.tensors.begin()->second;
  for (const auto& [name, info] : quantization.tensors) {
    if (const InputInfo* input = input_of(quantization, info); input && !fits(*input, ecosystem))
      fail(ErrorKind::unsupported,
           "{} reads an input that {} changes (order, scale or number of its columns), which no engine of {} "
           "does; such a model stays in halfbyte's own format{}",
           quote(name), quote(input->method), ecosystem.name,
           gathers_only(*input) ? " or becomes halfbyte-arc" : "");
    if (info.spec.format != first.spec.format ||
        quantization.activations_of(info) != quantization.activations_of(first))
      fail(ErrorKind::unsupported,
           "{} is {} and {} is {}, but {} checkpoints are written with one scheme for all layers",
           quote(quantization.tensors.begin()->first), to_string(first.spec), quote(name),
           to_string(info.spec), ecosystem.name);
  }
  if (ecosystem.input && std::ranges::none_of(quantization.inputs, [](const auto& input) {
        return changes_columns(input.second);
      }))
    fail(ErrorKind::unsupported,
         "no input of this model has another order or residual channels, so {} adds nothing; the layout "
         "compressed-tensors holds it",
         ecosystem.name);
}

std::vector<StoredTensor> store_halfbyte(const std::string& name, const QuantizedInfo& info,
                                         const QuantizedTensor& tensor) {
  std::vector<StoredTensor> parts;
  for (const TensorSpec& spec : part_specs(name, info)) {
    const auto is = [&](std::string_view part) { return spec.name == name + std::string(part); };
    const std::span<const std::byte> bytes = is(".codes") ? tensor.codes.as_bytes()
                                             : is(".global_scale")
                                                 ? std::as_bytes(std::span(&tensor.global_scale, 1))
                                             : is(".offset") ? std::as_bytes(std::span(&tensor.offset, 1))
                                             : is(".nested_absmax")  ? tensor.nested_absmax.as_bytes()
                                             : tensor.scales8.size() ? tensor.scales8.as_bytes()
                                                                     : tensor.scales.as_bytes();
    parts.push_back(stored(spec.name, spec.dtype, spec.shape, bytes));
  }
  return parts;
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const FormatRow& row, const ExportOptions& options)
      : checkpoint_(checkpoint),
        row_(row),
        options_(options),
        quantization_(exported(checkpoint.quantization(), options)) {
    if (!checkpoint.quantized())
      fail_input("{}: no tensor of this model is quantized; \"halfbyte quantize\" does that first",
                 checkpoint.dir().string());
    if (row_.ecosystem) check_for_ecosystem(quantization_, *row_.ecosystem);
  }

  ExportSummary run(const std::filesystem::path& out, const ExportProgress& progress) {
    // Everything is converted once before the first byte is written, so what is refused is refused here.
    std::vector<TensorSpec> specs;
    std::vector<std::string> names;
    std::int64_t stacked = 0, kv_scales = 0;
    DType dtype = DType::bf16;
    for (const std::string& name : checkpoint_.names()) {
      if (is_kv_scale(name) && row_.ecosystem != checkpoint_.ecosystem()) {
        ++kv_scales;
        continue;
      }
      names.push_back(name);
      if (checkpoint_.is_quantized(name)) {
        for (StoredTensor& part : store(name)) specs.push_back(std::move(part.spec));
        checkpoint_.drop(name);
        ++summary_.quantized;
        continue;
      }
      const Shape shape = checkpoint_.shape(name);
      specs.push_back({name, checkpoint_.dtype(name), shape});
      ++summary_.plain;
      stacked += shape.size() > 2;
      if (shape.size() == 2 && name.ends_with(".weight")) dtype = checkpoint_.dtype(name);
    }
    // Halfbyte's own format has the arrays of inputs apart.
    if (!row_.ecosystem)
      for (const auto& [name, info] : quantization_.inputs)
        for (TensorSpec& spec : input_specs(name, info)) specs.push_back(std::move(spec));
    ShardedWriter writer(out, specs, {{"format", "pt"}}, options_.max_shard_bytes);
    std::int64_t done = 0;
    for (const std::string& name : names) {
      if (const TensorView* view = checkpoint_.plain(name))
        writer.append(name, view->data);
      else
        for (const StoredTensor& part : store(name)) writer.append(part.spec.name, part.bytes);
      checkpoint_.drop(name);
      if (progress) progress(++done, static_cast<std::int64_t>(names.size()));
    }
    if (!row_.ecosystem)
      for (const auto& [name, info] : quantization_.inputs)
        for_each_part(name, checkpoint_.input(name),
                      [&](const std::string& part, auto bytes) { writer.append(part, bytes); });
    writer.finish();
    write_config(out, dtype);
    summary_.files = static_cast<std::int64_t>(writer.files());
    summary_.bytes = writer.file_bytes();
    if (stacked)
      summary_.notes.push_back(fmt::format(
          "{} tensors of three dimensions (experts?) are carried as they are, not quantized", stacked));
    if (row_.format == ExportFormat::halfbyte_arc)
      summary_.notes.push_back(
          "only halfbyte runs this layout; other engines can tell by the quant_method halfbyte-arc");
    if (kv_scales)
      summary_.notes.push_back(fmt::format("{} scales of the key and value cache are left out", kv_scales));
    return std::move(summary_);
  }

 private:
  std::vector<StoredTensor> store(const std::string& name) const {
    const QuantizedInfo& info = quantization_.tensors.find(name)->second;
    if (!row_.ecosystem) return store_halfbyte_parts(name, info);
    const auto& activations = quantization_.activations_of(info);
    const InputInfo* input = input_of(quantization_, info);
    std::vector<std::int32_t> columns;
    if (input && input->gathered) columns = checkpoint_.input(info.input).columns;
    return row_.ecosystem->store(name, checkpoint_.quantized(name),
                                 {.input = input,
                                  .columns = columns,
                                  .activations = activations ? &*activations : nullptr,
                                  .allow_rounding = options_.allow_rounding});
  }

  std::vector<StoredTensor> store_halfbyte_parts(const std::string& name, const QuantizedInfo& info) const {
    if (checkpoint_.ecosystem()) return store_halfbyte(name, info, checkpoint_.quantized(name));
    // From halfbyte to halfbyte: the parts as they lie there, those of outliers among them.
    std::vector<StoredTensor> parts;
    for (const TensorSpec& spec : part_specs(name, info))
      parts.push_back(stored(spec.name, spec.dtype, spec.shape, checkpoint_.files().at(spec.name).data));
    return parts;
  }

  void write_config(const std::filesystem::path& out, DType dtype) const {
    if (!row_.ecosystem) {
      write_model_files(checkpoint_, quantization_, out);
      return;
    }
    const EcosystemConfig model{.quantization = quantization_, .kept = kept_linears(), .dtype = dtype};
    write_model_files(checkpoint_, row_.ecosystem->config(model), out);
    if (row_.format == ExportFormat::modelopt)
      write_text_file(out / "hf_quant_config.json", dump_json(modelopt_quant_config(model)));
  }

  // Module names of the matrices that stay as they are, the head's among them where it is not quantized.
  std::vector<std::string> kept_linears() const {
    std::vector<std::string> kept;
    for (const std::string& name : checkpoint_.names()) {
      if (!checkpoint_.is_quantized(name) && checkpoint_.shape(name).size() == 2 &&
          name.ends_with(".weight") && name.find("embed") == std::string::npos)
        kept.push_back(name.substr(0, name.size() - std::string(".weight").size()));
    }
    if (!checkpoint_.has("lm_head.weight")) kept.push_back("lm_head");
    std::ranges::sort(kept);
    return kept;
  }

  const Checkpoint& checkpoint_;
  const FormatRow& row_;
  const ExportOptions& options_;
  HalfbyteQuantization quantization_;
  ExportSummary summary_;
};

}  // namespace

std::optional<ExportFormat> find_export_format(std::string_view name) {
  for (const FormatRow& row : kFormatRows)
    if (row.name == name) return row.format;
  return std::nullopt;
}

void check_exportable(const HalfbyteQuantization& quantization, ExportFormat format,
                      const ExportOptions& options) {
  const auto row = std::ranges::find(kFormatRows, format, &FormatRow::format);
  if (row->ecosystem) check_for_ecosystem(exported(quantization, options), *row->ecosystem);
}

ExportSummary export_checkpoint(const Checkpoint& checkpoint, ExportFormat format,
                                const std::filesystem::path& out, const ExportOptions& options,
                                const ExportProgress& progress) {
  const auto row = std::ranges::find(kFormatRows, format, &FormatRow::format);
  return Exporter(checkpoint, *row, options).run(out, progress);
}

}  // namespace halfbyte
