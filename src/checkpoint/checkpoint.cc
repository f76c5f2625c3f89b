#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/ecosystem.h"
#include "core/fail.h"
#include "io/output.h"
#include "io/text.h"

namespace halfbyte {

Checkpoint::Checkpoint(const std::filesystem::path& dir)
    : dir_(dir), config_file_((dir / "config.json").string()) {
  if (!std::filesystem::is_directory(dir))
    fail_input(
        "{}: not a directory; expected a Hugging Face model directory (a GGUF file is first imported with "
        "\"halfbyte import\")",
        dir.string());
  config_ = std::make_shared<const Json>(read_json_file(config_file_));
  if (const Json* quantization = json_find(*config_, "quantization_config")) {
    const std::string where = config_file_ + ": quantization_config";
    const std::string method = json_string(*quantization, "quant_method", where);
    ecosystem_ = find_ecosystem(method);
    if (!ecosystem_ && method != "halfbyte")
      fail(ErrorKind::unsupported,
           "{}: quant_method {} is not read; bitsandbytes, compressed-tensors, modelopt, halfbyte and "
           "halfbyte-arc are",
           where, quote(method));
    files_ = std::make_unique<SafetensorsModel>(dir);
    if (ecosystem_) {
      quantization_ = ecosystem_->parse(*config_, *quantization, where, *files_);
      return;
    }
    quantization_ = parse_halfbyte_quantization(*quantization, where);
  } else if (const std::filesystem::path own = dir / "hf_quant_config.json"; std::filesystem::exists(own)) {
    ecosystem_ = &kModelopt;
    files_ = std::make_unique<SafetensorsModel>(dir);
    quantization_ = ecosystem_->parse(*config_, read_json_file(own), own.string(), *files_);
    return;
  } else {
    files_ = std::make_unique<SafetensorsModel>(dir);
  }
  for (const auto& [name, info] : quantization_.tensors) {
    if (files_->describe(name))
      fail_input("{}: {} is stored plain although config.json calls it quantized", files_->path(),
                 quote(name));
    for (const TensorSpec& part : part_specs(name, info)) {
      const TensorView* stored = files_->describe(part.name);
      if (!stored)
        fail_input("{}: {} is missing, needed for {} ({})", files_->path(), quote(part.name), quote(name),
                   to_string(info.spec));
      if (stored->dtype != part.dtype || stored->shape != part.shape)
        fail_input("{}: {} is {} {}, expected {} {} ({} of shape {})", files_->path(), quote(part.name),
                   dtype_name(stored->dtype), to_string(stored->shape), dtype_name(part.dtype),
                   to_string(part.shape), to_string(info.spec), to_string(info.shape));
    }
  }
  // Short arrays, so they are read and checked at once.
  for (const auto& [name, info] : quantization_.inputs) read_input(*files_, name, info);
}

std::vector<std::string> Checkpoint::parts(const std::string& name, const QuantizedInfo& info) const {
  if (ecosystem_) return ecosystem_->parts(name, info, input_of(quantization_, info));
  std::vector<std::string> names;
  for (TensorSpec& part : part_specs(name, info)) names.push_back(std::move(part.name));
  return names;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> parts;
  for (const auto& [name, info] : quantization_.tensors)
    for (std::string& part : this->parts(name, info)) parts.push_back(std::move(part));
  for (const auto& [name, info] : quantization_.inputs)
    for (const TensorSpec& part : input_specs(name, info)) parts.push_back(part.name);
  std::sort(parts.begin(), parts.end());
  std::vector<std::string> names;
  for (std::string& name : files_->names())
    if (!std::binary_search(parts.begin(), parts.end(), name)) names.push_back(std::move(name));
  for (const auto& [name, info] : quantization_.tensors) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool Checkpoint::has(std::string_view name) const { return is_quantized(name) || files_->describe(name); }

Shape Checkpoint::shape(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  return found != quantization_.tensors.end() ? found->second.shape : described(name).shape;
}

const TensorView& Checkpoint::described(std::string_view name) const {
  if (const TensorView* view = files_->describe(name)) return *view;
  fail_input("{}: has no tensor {}", files_->path(), quote(name));
}

DType Checkpoint::dtype(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  return found != quantization_.tensors.end() ? found->second.source : described(name).dtype;
}

const TensorView* Checkpoint::plain(std::string_view name) const {
  // bitsandbytes and ModelOpt store codes under the name of the weight itself.
  return is_quantized(name) ? nullptr : files_->find(name);
}

QuantizedTensor Checkpoint::quantized(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found == quantization_.tensors.end())
    fail_input("{}: {} is not quantized", files_->path(), quote(name));
  if (ecosystem_)
    return ecosystem_->read(*files_, found->first, found->second, input_of(quantization_, found->second));
  return read_parts(*files_, found->first, found->second);
}

QuantizedTensor Checkpoint::outliers(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found == quantization_.tensors.end() || !found->second.outliers)
    fail_input("{}: {} has no outlier columns", files_->path(), quote(name));
  return read_parts(*files_, outlier_name(found->first), outlier_part(found->second));
}

InputTransform Checkpoint::input(std::string_view name) const {
  const auto found = quantization_.inputs.find(name);
  if (found == quantization_.inputs.end())
    fail_input("{}: {} is no input of a method", files_->path(), quote(name));
  if (ecosystem_ && ecosystem_->input) return ecosystem_->input(*files_, quantization_, found->first);
  return read_input(*files_, found->first, found->second);
}

std::int64_t Checkpoint::stored_bytes(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found != quantization_.tensors.end()) return stored_bytes_of(found->second);
  const TensorView& view = described(name);
  return view.elements() * dtype_bytes(view.dtype);
}

void Checkpoint::drop(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found == quantization_.tensors.end()) return files_->drop(name);
  for (const std::string& part : parts(found->first, found->second)) files_->drop(part);
}

void write_model_files(const Checkpoint& checkpoint, const HalfbyteQuantization& quantization,
                       const std::filesystem::path& out) {
  write_model_files(checkpoint, to_json(quantization), out);
}

void write_model_files(const Checkpoint& checkpoint, const Json& quantization,
                       const std::filesystem::path& out) {
  Json config = checkpoint.config();
  config["quantization_config"] = quantization;
  write_text_file(out / "config.json", dump_json(config));
  for (const std::string_view name : kModelFiles)
    if (name != "config.json" && std::filesystem::exists(checkpoint.dir() / name))
      std::filesystem::copy_file(checkpoint.dir() / name, out / name,
                                 std::filesystem::copy_options::overwrite_existing);
}

}  // namespace halfbyte
