#include "io/gguf_writer.h"

#include <algorithm>

#include "core/fail.h"
#include "io/gguf.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kAlignment = 32;

class Header {
 public:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number<std::uint64_t>(value.size());
    bytes_ += value;
  }
  void type(GgufType value) { number(static_cast<std::uint32_t>(value)); }

  void value(std::uint32_t v) { type(GgufType::u32), number(v); }
  void value(float v) { type(GgufType::f32), number(v); }
  void value(bool v) { type(GgufType::boolean), number<std::uint8_t>(v); }
  void value(const std::string& v) { type(GgufType::string), text(v); }
  void value(const std::vector<std::string>& v) {
    array(GgufType::string, v.size());
    for (const std::string& entry : v) text(entry);
  }
  void value(const std::vector<std::int32_t>& v) {
    array(GgufType::i32, v.size());
    for (const std::int32_t entry : v) number(entry);
  }
  void value(const std::vector<float>& v) {
    array(GgufType::f32, v.size());
    for (const float entry : v) number(entry);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void array(GgufType element, std::size_t size) {
    type(GgufType::array);
    type(element);
    number<std::uint64_t>(size);
  }

  std::string bytes_;
};

// Bytes of the tensor's blocks.
std::int64_t data_bytes(const GgufTensorSpec& spec, const std::string& file) {
  const auto type = std::ranges::find(kGgmlTypes, spec.type, &GgmlType::id);
  if (type == kGgmlTypes.end())
    fail_input("{}: tensor {} has the unknown type {}", file, quote(spec.name), spec.type);
  const auto elements = checked_count(spec.shape);
  if (!elements || spec.shape.empty() || spec.shape.size() > 4)
    fail_input("{}: tensor {} with the shape {} cannot be written", file, quote(spec.name),
               to_string(spec.shape));
  if (spec.shape.back() % type->block_values != 0)
    fail_input("{}: the rows of tensor {} hold {} values, expected a multiple of {} for {}", file,
               quote(spec.name), spec.shape.back(), type->block_values, type->name);
  const auto bytes = checked_mul(*elements / type->block_values, type->block_bytes);
  if (!bytes) fail_input("{}: tensor {} is too large to be written", file, quote(spec.name));
  return *bytes;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& target,
                       const std::vector<std::pair<std::string, GgufMetadata>>& keys,
                       std::vector<GgufTensorSpec> tensors)
    : file_(target), specs_(std::move(tensors)) {
  Header header;
  header.number<std::uint32_t>(0x46554747);  // "GGUF"
  header.number<std::uint32_t>(3);
  header.number<std::uint64_t>(specs_.size());
  header.number<std::uint64_t>(keys.size());
  for (const auto& [key, value] : keys) {
    header.text(key);
    std::visit([&](const auto& v) { header.value(v); }, value);
  }
  std::int64_t offset = 0;
  for (const GgufTensorSpec& spec : specs_) {
    const std::int64_t bytes = data_bytes(spec, file_.path());
    header.text(spec.name);
    header.number<std::uint32_t>(static_cast<std::uint32_t>(spec.shape.size()));
    for (std::size_t i = spec.shape.size(); i-- > 0;)
      header.number<std::uint64_t>(static_cast<std::uint64_t>(spec.shape[i]));
    header.number(spec.type);
    header.number<std::uint64_t>(static_cast<std::uint64_t>(offset));
    if (!places_.add(spec.name, offset, bytes))
      fail_input("{}: the tensor name {} cannot be written twice", file_.path(), quote(spec.name));
    if (__builtin_add_overflow(offset, round_up(bytes, kAlignment), &offset))
      fail_input("{}: tensor {} is too large to be written", file_.path(), quote(spec.name));
  }
  const auto header_bytes = static_cast<std::int64_t>(header.bytes().size());
  const std::int64_t data_begin = round_up(header_bytes, kAlignment);
  file_.write(header.bytes());
  file_.write(std::string(static_cast<std::size_t>(data_begin - header_bytes), '\0'));
  places_.move_all(data_begin);
  for (const GgufTensorSpec& spec : specs_) {
    const TensorPlaces::Place& place = places_.at(spec.name, file_);
    const std::int64_t padding = round_up(place.size, kAlignment) - place.size;
    if (padding)
      file_.write_at(place.begin + place.size, std::vector<std::byte>(static_cast<std::size_t>(padding)));
  }
  file_bytes_ = data_begin + offset;
}

void GgufWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  places_.append(name, bytes, file_);
}

void GgufWriter::finish() {
  places_.require_complete(specs_, file_);
  file_.commit();
}

}  // namespace halfbyte
