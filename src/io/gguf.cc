// Reading GGUF: a cursor that cannot leave the file, then the checks of tensor places.
#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/fail.h"
#include "core/tensor.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr int kMaxRank = 4;
constexpr int kMaxArrayDepth = 4;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // an entry of rank 1 with an empty name
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;

constexpr std::array<std::string_view, 13> kTypeNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                      "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<std::int64_t, 13> kTypeBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: varies

class Cursor {
 public:
  Cursor(const std::string& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}

  std::uint64_t left() const { return bytes_.size() - at_; }
  std::uint64_t at() const { return at_; }
  void in(std::string_view part) { part_ = part; }  // what is being read, for messages
  std::string part() const { return part_.empty() ? "the header" : quote(part_); }
  const std::string& file() const { return file_; }

  std::span<const std::byte> take(std::uint64_t size) {
    if (size > left())
      fail_input("{}: {} at byte {} needs {} more bytes, but the file has {}; was it cut off?", file_, part(),
                 at_, size, left());
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  template <typename T>
  T read() {
    return load<T>(take(sizeof(T)).data());
  }
  std::string_view text() {
    const auto length = read<std::uint64_t>();
    const auto taken = take(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  GgufType type() {
    const auto number = read<std::uint32_t>();
    if (number >= kTypeNames.size())
      fail_input("{}: {} has the value type {}, but GGUF has only types 0 to {}", file_, part(), number,
                 kTypeNames.size() - 1);
    return static_cast<GgufType>(number);
  }

  GgufArray array(int depth) {
    if (depth > kMaxArrayDepth)
      fail_input("{}: {} holds arrays nested deeper than {} levels", file_, part(), kMaxArrayDepth);
    GgufArray array;
    array.type = type();
    const auto count = read<std::uint64_t>();
    const std::int64_t size = kTypeBytes[static_cast<std::size_t>(array.type)];
    // Smallest size of an element, so that a count is refused before anything is allocated for it.
    const std::uint64_t least = size                             ? static_cast<std::uint64_t>(size)
                                : array.type == GgufType::string ? 8
                                                                 : 12;
    if (count > left() / least)
      fail_input(
          "{}: {} declares an array of {} elements of type {}, but only {} bytes follow; was it cut off?",
          file_, part(), count, gguf_type_name(array.type), left());
    array.count = static_cast<std::int64_t>(count);
    if (size) {
      array.bytes = take(count * least);
      if (array.type == GgufType::boolean)
        for (const std::byte byte : array.bytes) check_bool(byte);
    } else if (array.type == GgufType::string) {
      array.strings.reserve(count);
      for (std::uint64_t i = 0; i < count; ++i) array.strings.push_back(text());
    } else {
      for (std::uint64_t i = 0; i < count; ++i) array.arrays.push_back(this->array(depth + 1));
    }
    return array;
  }

  GgufValue value() {
    GgufValue value;
    value.type = type();
    switch (value.type) {
      case GgufType::u8:
        value.data = std::uint64_t{read<std::uint8_t>()};
        break;
      case GgufType::u16:
        value.data = std::uint64_t{read<std::uint16_t>()};
        break;
      case GgufType::u32:
        value.data = std::uint64_t{read<std::uint32_t>()};
        break;
      case GgufType::u64:
        value.data = read<std::uint64_t>();
        break;
      case GgufType::i8:
        value.data = std::int64_t{read<std::int8_t>()};
        break;
      case GgufType::i16:
        value.data = std::int64_t{read<std::int16_t>()};
        break;
      case GgufType::i32:
        value.data = std::int64_t{read<std::int32_t>()};
        break;
      case GgufType::i64:
        value.data = read<std::int64_t>();
        break;
      case GgufType::f32:
        value.data = double{read<float>()};
        break;
      case GgufType::f64:
        value.data = read<double>();
        break;
      case GgufType::boolean:
        value.data = check_bool(read<std::byte>());
        break;
      case GgufType::string:
        value.data = text();
        break;
      case GgufType::array:
        value.data = array(1);
        break;
    }
    return value;
  }

 private:
  bool check_bool(std::byte byte) const {
    if (byte > std::byte{1})
      fail_input("{}: {} holds the bool {}, expected 0 or 1", file_, part(), static_cast<int>(byte));
    return byte == std::byte{1};
  }

  const std::string& file_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::string_view part_;
};

void check_name(const std::string& file, std::string_view kind, std::string_view name) {
  if (name.empty()) fail_input("{}: has a {} without a name", file, kind);
  if (!is_utf8(name)) fail_input("{}: the {} name {} is not UTF-8", file, kind, quote(name));
}

// Returns the tensor without its data and where the data begins, relative to the data section.
GgufTensor read_tensor(Cursor& cursor, std::uint64_t& offset) {
  GgufTensor tensor;
  tensor.name = cursor.text();
  check_name(cursor.file(), "tensor", tensor.name);
  cursor.in(tensor.name);
  const auto rank = cursor.read<std::uint32_t>();
  if (rank < 1 || rank > kMaxRank)
    fail_input("{}: tensor {} has {} dimensions, expected 1 to {}", cursor.file(), quote(tensor.name), rank,
               kMaxRank);
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = cursor.read<std::uint64_t>();
    if (extent < 1 || extent > std::uint64_t{1} << 62)
      fail_input("{}: tensor {} has a dimension of {}", cursor.file(), quote(tensor.name), extent);
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  const auto id = cursor.read<std::uint32_t>();
  const auto* type = std::ranges::find(kGgmlTypes, id, &GgmlType::id);
  if (type == kGgmlTypes.end())
    fail(ErrorKind::unsupported, "{}: tensor {} has the ggml type number {}, which halfbyte does not know",
         cursor.file(), quote(tensor.name), id);
  tensor.type = type;
  offset = cursor.read<std::uint64_t>();
  return tensor;
}

std::int64_t tensor_bytes(const std::string& file, const GgufTensor& tensor) {
  const std::int64_t row = tensor.shape.back();
  if (row % tensor.type->block_values != 0)
    fail_input("{}: tensor {} has rows of {} values, which is no multiple of the {} in a block of {}", file,
               quote(tensor.name), row, tensor.type->block_values, tensor.type->name);
  const auto elements = checked_count(tensor.shape);
  const auto bytes =
      elements ? checked_mul(*elements / tensor.type->block_values, tensor.type->block_bytes) : std::nullopt;
  if (!bytes)
    fail_input("{}: tensor {} has the shape {}, which is too large", file, quote(tensor.name),
               to_string(tensor.shape));
  return *bytes;
}

void check_overlaps(const std::string& file, std::span<const GgufTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return tensors[i].data.data(); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = tensors[order[i - 1]];
    const GgufTensor& after = tensors[order[i]];
    if (before.data.data() + before.data.size() > after.data.data())
      fail_input("{}: the data of the tensors {} and {} overlap", file, quote(before.name),
                 quote(after.name));
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  const std::string& file = file_.path();
  Cursor cursor(file, file_.bytes());
  const auto magic = cursor.take(4);
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), 4) != "GGUF")
    fail_input("{}: does not begin with \"GGUF\"; is it a GGUF file?", file);
  version_ = cursor.read<std::uint32_t>();
  if (version_ == 0x02000000 || version_ == 0x03000000)
    fail(ErrorKind::unsupported,
         "{}: is a big-endian GGUF file; convert it to little-endian first (gguf-convert-endian)", file);
  if (version_ != 2 && version_ != 3)
    fail(ErrorKind::unsupported, "{}: has GGUF version {}, expected 2 or 3", file, version_);
  const auto tensor_count = cursor.read<std::uint64_t>();
  const auto key_count = cursor.read<std::uint64_t>();
  if (key_count > cursor.left() / kMinKeyBytes || tensor_count > cursor.left() / kMinTensorBytes)
    fail_input("{}: declares {} keys and {} tensors, more than fit in its {} bytes; was it cut off?", file,
               key_count, tensor_count, file_.size());

  for (std::uint64_t i = 0; i < key_count; ++i) {
    const std::string_view key = cursor.text();
    check_name(file, "key", key);
    cursor.in(key);
    if (!key_index_.emplace(key, keys_.size()).second)
      fail_input("{}: the key {} stands twice", file, quote(key));
    keys_.emplace_back(key, cursor.value());
    cursor.in({});
  }
  std::uint64_t alignment = 32;
  if (has("general.alignment")) {
    const std::int64_t wanted = integer("general.alignment");
    if (wanted < 1 || wanted > std::int64_t{1} << 31 ||
        !std::has_single_bit(static_cast<std::uint64_t>(wanted)))
      fail_input("{}: general.alignment is {}, expected a power of two", file, wanted);
    alignment = static_cast<std::uint64_t>(wanted);
  }

  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    std::uint64_t offset = 0;
    GgufTensor tensor = read_tensor(cursor, offset);
    cursor.in({});
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second)
      fail_input("{}: the tensor {} stands twice", file, quote(tensor.name));
    if (offset % alignment != 0)
      fail_input("{}: tensor {} begins at data byte {}, which is no multiple of the alignment {}", file,
                 quote(tensor.name), offset, alignment);
    tensors_.push_back(std::move(tensor));
    offsets.push_back(offset);
  }
  const std::uint64_t data_begin = (cursor.at() + alignment - 1) / alignment * alignment;
  const auto size = static_cast<std::uint64_t>(file_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto bytes = static_cast<std::uint64_t>(tensor_bytes(file, tensors_[i]));
    if (data_begin > size || offsets[i] > size - data_begin || bytes > size - data_begin - offsets[i])
      fail_input(
          "{}: tensor {} needs {} bytes from byte {} + {} on, past the end of the file at {}; was it cut "
          "off?",
          file, quote(tensors_[i].name), bytes, data_begin, offsets[i], size);
    tensors_[i].data = file_.bytes().subspan(data_begin + offsets[i], bytes);
  }
  check_overlaps(file, tensors_);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(key);
  return found == key_index_.end() ? nullptr : &keys_[found->second].second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  if (const GgufTensor* found = find_tensor(name)) return *found;
  fail_input("{}: has no tensor {}", path(), quote(name));
}

}  // namespace halfbyte
