// A model directory as its tensors: plain ones as they lie in the file, quantized ones as codes and scales.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/halfbyte.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace halfbyte {

struct Ecosystem;

// Reads plain Hugging Face directories, those that halfbyte wrote, and those of the ecosystems in ecosystem.h. Opening checks
// config.json, every header and that each quantized tensor has exactly its parts, in the right types and shapes; nothing is
// copied until it is asked for.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const std::string& config_file() const { return config_file_; }  // for messages
  const Json& config() const { return *config_; }
  const SafetensorsModel& files() const { return *files_; }
  bool quantized() const { return !quantization_.tensors.empty(); }
  const HalfbyteQuantization& quantization() const { return quantization_; }
  const Ecosystem* ecosystem() const { return ecosystem_; }  // null for halfbyte's own and plain ones

  // Names in the model's sense ("lm_head.weight"): a quantized tensor counts once, its parts not at all. Sorted.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const;
  Shape shape(std::string_view name) const;              // throws where there is none of that name
  DType dtype(std::string_view name) const;              // the same; of a quantized tensor that before
  const TensorView* plain(std::string_view name) const;  // null where absent or quantized
  bool is_quantized(std::string_view name) const { return quantization_.tensors.contains(name); }
  // A copy of codes and scales; throws bad_input for a scale that is NaN, infinite or negative.
  QuantizedTensor quantized(std::string_view name) const;
  // The same of its last columns, where they have a format of their own (QuantizedInfo::outliers; quantized() has the rest).
  QuantizedTensor outliers(std::string_view name) const;
  // What the linears of that input read; name is one of quantization().inputs. Throws bad_input for impossible contents.
  InputTransform input(std::string_view name) const;
  std::int64_t stored_bytes(std::string_view name) const;
  // Gives back the memory of the mapped pages of that tensor.
  void drop(std::string_view name) const;

 private:
  const TensorView& described(std::string_view name) const;

  std::vector<std::string> parts(const std::string& name, const QuantizedInfo& info) const;  // stored tensors

  std::filesystem::path dir_;
  std::string config_file_;
  std::shared_ptr<const Json> config_;
  std::unique_ptr<SafetensorsModel> files_;
  const Ecosystem* ecosystem_ = nullptr;
  HalfbyteQuantization quantization_;
};

// The files of a model directory that are not weights.
inline constexpr std::string_view kModelFiles[] = {"config.json",
                                                   "tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "tokenizer.model",
                                                   "special_tokens_map.json",
                                                   "added_tokens.json",
                                                   "vocab.json",
                                                   "merges.txt",
                                                   "chat_template.jinja",
                                                   "generation_config.json"};

// Everything of a model directory but the weights, for a quantized copy of it in `out`: config.json with its
// quantization_config, and copies of the tokenizer's and generation's files that are there.
void write_model_files(const Checkpoint& checkpoint, const HalfbyteQuantization& quantization,
                       const std::filesystem::path& out);
// The same with an entry in another ecosystem's terms.
void write_model_files(const Checkpoint& checkpoint, const Json& quantization,
                       const std::filesystem::path& out);

}  // namespace halfbyte
