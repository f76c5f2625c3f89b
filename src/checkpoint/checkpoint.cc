#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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
    if (method != "halfbyte")
      fail(ErrorKind::unsupported,
           "{}: quant_method {} is not read by this version, only \"halfbyte\" and plain models are", where,
           quote(method));
    quantization_ = parse_halfbyte_quantization(*quantization, where);
  }
  files_ = std::make_unique<SafetensorsModel>(dir);
  for (const auto& [name, info] : quantization_.tensors) {
    if (files_->find(name))
      fail_input("{}: {} is stored plain although config.json calls it quantized", files_->path(),
                 quote(name));
    for (const TensorSpec& part : part_specs(name, info)) {
      const TensorView* stored = files_->find(part.name);
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

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> parts;
  for (const auto& [name, info] : quantization_.tensors)
    for (const TensorSpec& part : part_specs(name, info)) parts.push_back(part.name);
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

bool Checkpoint::has(std::string_view name) const { return is_quantized(name) || files_->find(name); }

Shape Checkpoint::shape(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  return found != quantization_.tensors.end() ? found->second.shape : files_->at(name).shape;
}

const TensorView* Checkpoint::plain(std::string_view name) const { return files_->find(name); }

QuantizedTensor Checkpoint::quantized(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found == quantization_.tensors.end())
    fail_input("{}: {} is not quantized", files_->path(), quote(name));
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
  return read_input(*files_, found->first, found->second);
}

std::int64_t Checkpoint::stored_bytes(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found != quantization_.tensors.end()) return stored_bytes_of(found->second);
  return static_cast<std::int64_t>(files_->at(name).data.size());
}

void Checkpoint::drop(std::string_view name) const {
  const auto found = quantization_.tensors.find(name);
  if (found == quantization_.tensors.end()) return files_->drop(name);
  for (const TensorSpec& part : part_specs(found->first, found->second)) files_->drop(part.name);
}

void write_model_files(const Checkpoint& checkpoint, const HalfbyteQuantization& quantization,
                       const std::filesystem::path& out) {
  Json config = checkpoint.config();
  config["quantization_config"] = to_json(quantization);
  write_text_file(out / "config.json", dump_json(config));
  for (const std::string_view name : kModelFiles)
    if (name != "config.json" && std::filesystem::exists(checkpoint.dir() / name))
      std::filesystem::copy_file(checkpoint.dir() / name, out / name,
                                 std::filesystem::copy_options::overwrite_existing);
}

}  // namespace halfbyte
