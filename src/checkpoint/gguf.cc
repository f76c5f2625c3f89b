// Importing a GGUF file: checks everything first, then streams the tensors.
#include "checkpoint/gguf.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_tokenizer.h"
#include "core/fail.h"
#include "formats/bf16.h"
#include "formats/ggml_blocks.h"
#include "io/output.h"
#include "io/safetensors.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kPieceValues = 1 << 18;  // decoded and written at once; a multiple of every block

// Decodes stretches of a tensor and appends them to the output as BF16.
class Converter {
 public:
  Converter(const GgufSlot& slot, SafetensorsWriter& writer)
      : slot_(slot), decoder_(*find_ggml_decoder(slot.source->type->id)), writer_(writer) {
    if (slot.scale) scale_ = load<float>(slot.scale->data.data());
  }

  // values [begin, begin + count) in the order of the file; both multiples of the block.
  void add(std::int64_t begin, std::int64_t count) {
    while (count > 0) {
      const std::int64_t part = std::min(count, kPieceValues - static_cast<std::int64_t>(filled_));
      const std::byte* from =
          slot_.source->data.data() + begin / decoder_.block_values * decoder_.block_bytes;
      float* to = values_.data() + filled_;
      decoder_.decode(from, part / decoder_.block_values, to);
      if (slot_.scale) std::for_each(to, to + part, [&](float& value) { value = value * scale_; });
      filled_ += static_cast<std::size_t>(part);
      begin += part;
      count -= part;
      if (static_cast<std::int64_t>(filled_) == kPieceValues) flush();
    }
  }
  void flush() {
    std::transform(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(filled_), codes_.begin(),
                   bf16_encode);
    writer_.append(slot_.name, std::as_bytes(std::span(codes_).first(filled_)));
    filled_ = 0;
  }

 private:
  const GgufSlot& slot_;
  const GgmlDecoder& decoder_;
  SafetensorsWriter& writer_;
  float scale_ = 1;
  std::vector<float> values_ = std::vector<float>(kPieceValues);
  std::vector<std::uint16_t> codes_ = std::vector<std::uint16_t>(kPieceValues);
  std::size_t filled_ = 0;
};

void convert(const GgufSlot& slot, SafetensorsWriter& writer) {
  Converter converter(slot, writer);
  const Shape& shape = slot.source->shape;
  if (slot.unpermute == 0) {
    converter.add(0, count(shape));
  } else {
    // In each head the two halves of the rope dimensions were interleaved: row a * half + b came from row 2b + a.
    const std::int64_t row = shape.size() == 2 ? shape[1] : 1, head_rows = shape[0] / slot.unpermute;
    for (std::int64_t head = 0; head < slot.unpermute; ++head)
      for (std::int64_t a = 0; a < 2; ++a)
        for (std::int64_t b = 0; b < head_rows / 2; ++b)
          converter.add((head * head_rows + 2 * b + a) * row, row);
  }
  converter.flush();
}

}  // namespace

GgufImport import_gguf(const std::filesystem::path& path, const std::filesystem::path& target, bool overwrite,
                       const ImportProgress& progress) {
  const GgufFile file(path);
  const GgufModel model = read_gguf_model(file);
  const auto slots = list_gguf_tensors(file, model);
  const GgufTokenizer tokenizer = read_gguf_tokenizer(file, model.vocab, model.context);
  Json config = gguf_config_json(file, model);
  if (tokenizer.bos) config["bos_token_id"] = *tokenizer.bos;
  if (tokenizer.eos) config["eos_token_id"] = *tokenizer.eos;
  if (tokenizer.pad) config["pad_token_id"] = *tokenizer.pad;

  GgufImport result{.architecture = model.arch, .bytes_read = file.size()};
  std::vector<TensorSpec> specs;
  for (const GgufSlot& slot : slots) {
    specs.push_back({slot.name, DType::bf16, slot.source->shape});
    result.parameters += count(slot.source->shape);
  }
  result.tensors = static_cast<std::int64_t>(specs.size());
  OutputDirectory folder(target, overwrite);
  SafetensorsWriter writer(folder.temporary() / "model.safetensors", std::move(specs), {{"format", "pt"}});
  std::int64_t done = 0;
  for (const GgufSlot& slot : slots) {
    convert(slot, writer);
    file.drop(*slot.source);
    done += static_cast<std::int64_t>(slot.source->data.size());
    if (progress) progress(done, file.size());
  }
  writer.finish();
  result.bytes_written = writer.file_bytes();
  write_text_file(folder.temporary() / "config.json", dump_json(config));
  write_text_file(folder.temporary() / "generation_config.json", tokenizer.generation_config);
  write_text_file(folder.temporary() / "tokenizer.json", tokenizer.tokenizer);
  write_text_file(folder.temporary() / "tokenizer_config.json", tokenizer.tokenizer_config);
  folder.commit();
  return result;
}

}  // namespace halfbyte
