// Tensors of a checkpoint as a model needs them, with the refusals that all engines share.
#include "model/weight_reader.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "formats/source_dtype.h"
#include "io/text.h"
#include "ops/dequantize/op.h"

namespace halfbyte {

void check_tensor(const Checkpoint& checkpoint, const std::string& name, const Shape& expected) {
  if (!checkpoint.has(name))
    fail_input(
        "{}: {} is missing, config.json asks for it; the model is incomplete or config.json belongs to "
        "another",
        checkpoint.files().path(), quote(name));
  const Shape found = checkpoint.shape(name);
  if (found != expected)
    fail_input("{}: {} has shape {}, config.json asks for {}", checkpoint.files().path(), quote(name),
               to_string(found), to_string(expected));
}

DType plain_dtype(const Checkpoint& checkpoint, const std::string& name) {
  const DType dtype = checkpoint.plain(name)->dtype;
  if (!is_source_dtype(dtype))
    fail(ErrorKind::unsupported, "{}: {} is {}, expected F32, BF16 or F16", checkpoint.files().path(),
         quote(name), dtype_name(dtype));
  return dtype;
}

void warn_of_unused(const WeightReader& reader, const ModelConfig& config,
                    std::vector<std::string>& warnings) {
  const std::vector<std::string> unused = reader.unused();
  if (!unused.empty())
    warnings.push_back(fmt::format(
        "{}: {} tensors are not part of a {} model and are ignored, the first is {}",
        reader.checkpoint().files().path(), unused.size(), config.model_type, quote(unused.front())));
}

std::string warning_of_own_head(const Checkpoint& checkpoint) {
  return fmt::format(
      "{}: tie_word_embeddings is true, but the file holds a lm_head.weight of its own; the file's is used",
      checkpoint.config_file());
}

void fail_without_head(const Checkpoint& checkpoint) {
  fail_input("{}: \"lm_head.weight\" is missing and config.json does not set tie_word_embeddings",
             checkpoint.files().path());
}

void WeightReader::claim(const std::string& name, const Shape& expected) {
  check_tensor(checkpoint_, name, expected);
  used_.insert(name);
  parameters_ += count(expected);
}

Array<float> WeightReader::tensor(const std::string& name, const Shape& expected) {
  claim(name, expected);
  return values(name);
}

Linear WeightReader::outline(const LinearInfo& info) {
  Linear linear;
  linear.out = info.out;
  linear.in = info.in;
  if (const InputInfo* input = input_of(info)) linear.in = input->width;
  claim(info.name + ".weight", {info.out, linear.in});
  parameters_ -= info.out * (linear.in - info.in);
  if (info.bias) linear.bias = tensor(info.name + ".bias", {info.out});
  const HalfbyteQuantization& quantization = checkpoint_.quantization();
  if (const auto found = quantization.tensors.find(info.name + ".weight");
      found != quantization.tensors.end()) {
    linear.activations = quantization.activations_of(found->second);
    if (!found->second.input.empty()) linear.transform = transform(found->second.input);
  }
  return linear;
}

Linear WeightReader::linear(const LinearInfo& info) {
  Linear linear = outline(info);
  linear.weight = values(info.name + ".weight");
  return linear;
}

std::vector<std::string> WeightReader::unused() const {
  std::vector<std::string> names;
  for (std::string& name : checkpoint_.names())
    if (!used_.contains(name) && !name.ends_with("rotary_emb.inv_freq")) names.push_back(std::move(name));
  return names;
}

// What comes before that linear, or null.
const InputInfo* WeightReader::input_of(const LinearInfo& info) const {
  const HalfbyteQuantization& quantization = checkpoint_.quantization();
  const auto tensor = quantization.tensors.find(info.name + ".weight");
  if (tensor == quantization.tensors.end() || tensor->second.input.empty()) return nullptr;
  const InputInfo& input = quantization.inputs.find(tensor->second.input)->second;
  if (input.channels != info.in)
    fail_input("{}: input {} has {} channels, but {} reads {}", checkpoint_.config_file(),
               quote(tensor->second.input), input.channels, info.name, info.in);
  return &input;
}

std::shared_ptr<const LinearTransform> WeightReader::transform(const std::string& name) {
  auto& shared = transforms_[name];
  if (!shared) {
    LinearTransform read{.input = checkpoint_.input(name), .residual = {}};
    if (read.input.info.residual) read.residual = residual_positions(read.input);
    shared = std::make_shared<const LinearTransform>(std::move(read));
  }
  return shared;
}

Array<float> WeightReader::values(const std::string& name) {
  Array<float> values = checkpoint_.is_quantized(name) ? decode(name) : widen(name);
  checkpoint_.drop(name);
  // A row of the embedding matters only where its token occurs; logits() looks at what comes out.
  if (name != "model.embed_tokens.weight") check_finite(name, values);
  return values;
}

// All columns of a quantized tensor, outliers last.
Array<float> WeightReader::decode(const std::string& name) {
  Array<float> main = dequantize(checkpoint_.quantized(name), pool_);
  const QuantizedInfo& info = checkpoint_.quantization().tensors.find(name)->second;
  if (!info.outliers) return main;
  const Array<float> outliers = dequantize(checkpoint_.outliers(name), pool_);
  const std::int64_t rows = info.shape[0], width = info.shape[1], columns = width - info.outliers;
  Array<float> all(rows * width);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(main.data() + row * columns, columns, all.data() + row * width);
    std::copy_n(outliers.data() + row * info.outliers, info.outliers, all.data() + row * width + columns);
  }
  return all;
}

Array<float> WeightReader::widen(const std::string& name) {
  const DType dtype = plain_dtype(checkpoint_, name);
  const TensorView& view = *checkpoint_.plain(name);
  constexpr std::int64_t kPerItem = 1 << 18;
  Array<float> values(view.elements());
  const std::byte* bytes = view.data.data();
  pool_.parallel_for(ceil_div(values.size(), kPerItem), [&](std::int64_t item) {
    const std::int64_t begin = item * kPerItem, end = std::min(values.size(), begin + kPerItem);
    for (std::int64_t i = begin; i < end; ++i) values[i] = load_element(dtype, bytes, i);
  });
  return values;
}

// Not-a-numbers would pass through the softmax unseen.
void WeightReader::check_finite(const std::string& name, const Array<float>& values) {
  constexpr std::int64_t kPerItem = 1 << 18;
  pool_.parallel_for(ceil_div(values.size(), kPerItem), [&](std::int64_t item) {
    const std::int64_t begin = item * kPerItem, end = std::min(values.size(), begin + kPerItem);
    for (std::int64_t i = begin; i < end; ++i)
      if (!std::isfinite(values[i]))
        fail_input("{}: {} holds {} at element {}; the weights are damaged", checkpoint_.files().path(),
                   quote(name), values[i], i);
  });
}

}  // namespace halfbyte
