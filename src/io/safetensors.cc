// Reading safetensors: the header goes through a handler that knows its grammar, so nothing else is ever
// stored.
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "core/fail.h"
#include "io/json.h"
#include "io/text.h"

namespace halfbyte {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are used as they lie in little-endian files");

namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 32;
// Types of the format that no room of halfbyte has a use for.
constexpr std::string_view kForeignTypes[] = {"F4",          "F6_E2M3",     "F6_E3M2",
                                              "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"};

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<Shape> shape;
  std::optional<Shape> offsets;
};

class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Entry> entries;
  Metadata metadata;

  bool null() override { wrong("null"); }
  bool boolean(bool) override { wrong("true or false"); }
  bool number_integer(number_integer_t) override { wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { wrong("a number that is not whole"); }
  bool binary(binary_t&) override { wrong("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!list_) wrong("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail_input("{}: the header's entry for {} holds the number {}, which is too large", file_, quote(name_),
                 value);
    if (list_->size() == kMaxRank)
      fail_input("{}: tensor {} has more than {} dimensions", file_, quote(name_), kMaxRank);
    list_->push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      if (!metadata.emplace(key_, std::move(value)).second) twice(key_);
    } else if (depth_ == 2 && key_ == "dtype") {
      if (entries.back().dtype) twice(key_);
      entries.back().dtype = std::move(value);
    } else {
      wrong("a string");
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || list_) wrong("an object");
    if (depth_++ == 1 && !in_metadata_)
      entries.push_back({.name = name_, .dtype = {}, .shape = {}, .offsets = {}});
    return true;
  }
  bool end_object() override {
    --depth_;
    in_metadata_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ || (key_ != "shape" && key_ != "data_offsets"))
      wrong("an array");
    std::optional<Shape>& place = key_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (place) twice(key_);
    list_ = &place.emplace();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) {
      name_ = std::move(text);
      in_metadata_ = name_ == "__metadata__";
      if (!names_.insert(name_).second) twice(name_);
    } else {
      if (!in_metadata_ && text != "dtype" && text != "shape" && text != "data_offsets")
        fail_input("{}: the header's entry for {} has the unknown key {}", file_, quote(name_), quote(text));
      key_ = std::move(text);
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    fail_input("{}: the header is not valid JSON at byte {}, near {}", file_, position + 8, quote(token));
  }

 private:
  [[noreturn]] void wrong(std::string_view found) const {
    if (depth_ == 0) fail_input("{}: the header must be a JSON object, but it is {}", file_, found);
    if (in_metadata_)
      fail_input("{}: __metadata__ must hold strings only, but it or its {} is {}", file_, quote(key_),
                 found);
    fail_input("{}: the header's entry for {} must be dtype, shape and data_offsets, but {} stands there",
               file_, quote(name_), found);
  }
  [[noreturn]] void twice(std::string_view key) const {
    fail_input("{}: the key {} stands twice in the header", file_, quote(key));
  }

  const std::string& file_;
  std::unordered_set<std::string> names_;
  std::string name_, key_;
  Shape* list_ = nullptr;
  int depth_ = 0;
  bool in_metadata_ = false;
};

DType known_dtype(const std::string& file, const Entry& entry) {
  if (const auto dtype = dtype_from_name(*entry.dtype)) return *dtype;
  const bool foreign = std::ranges::find(kForeignTypes, *entry.dtype) != std::end(kForeignTypes);
  fail(foreign ? ErrorKind::unsupported : ErrorKind::bad_input, "{}: tensor {} has the dtype {}, which {}",
       file, quote(entry.name), quote(*entry.dtype),
       foreign ? "halfbyte does not support"
               : "is none of the safetensors types; is the file newer than this program?");
}

// A tensor of the file and where its bytes begin behind the header.
struct PlacedTensor {
  NamedTensor tensor;
  std::int64_t begin, bytes;
};

PlacedTensor check_entry(const std::string& file, Entry& entry, std::int64_t size) {
  const std::string name = quote(entry.name);
  if (!entry.dtype || !entry.shape || !entry.offsets)
    fail_input("{}: tensor {} lacks its {}", file, name,
               !entry.dtype   ? "dtype"
               : !entry.shape ? "shape"
                              : "data_offsets");
  const DType dtype = known_dtype(file, entry);
  if (entry.offsets->size() != 2)
    fail_input("{}: tensor {} has {} data_offsets, expected begin and end", file, name,
               entry.offsets->size());
  const std::int64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (begin > end || end > size)
    fail_input("{}: tensor {} has the data_offsets [{}, {}], but the file holds {} bytes of data", file, name,
               begin, end, size);
  const auto elements = checked_count(*entry.shape);
  const auto bytes = elements ? checked_mul(*elements, dtype_bytes(dtype)) : std::nullopt;
  if (!bytes)
    fail_input("{}: tensor {} has the shape {}, which is too large", file, name, to_string(*entry.shape));
  if (*bytes != end - begin)
    fail_input("{}: tensor {} holds {} bytes, expected {} for {} {}", file, name, end - begin, *bytes,
               *entry.dtype, to_string(*entry.shape));
  return {{std::move(entry.name), {dtype, std::move(*entry.shape), {}}}, begin, *bytes};
}

}  // namespace

// What is mapped of each tensor, and where it lies in the file.
struct SafetensorsFile::ByTensor {
  std::mutex mutex;
  std::vector<std::int64_t> begins, bytes;
  std::vector<MappedFile> maps;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, Mapping mapping) {
  const std::string file = path.string();
  std::error_code error;
  if (mapping == Mapping::whole) {
    file_ = MappedFile(path);
    size_ = file_.size();
  } else {
    file_ = MappedFile(path, 0, 0);  // refuses what is no file
    size_ = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
    if (size_ >= 8) file_ = MappedFile(path, 0, 8);
  }
  if (size_ < 8)
    fail_input("{}: holds {} bytes, fewer than the 8 a safetensors file begins with; was it cut off?", file,
               size_);
  const auto header_bytes = load<std::uint64_t>(file_.bytes().data());
  if (header_bytes > kMaxHeaderBytes)
    fail_input("{}: declares a header of {} bytes, more than the {} allowed; is it a safetensors file?", file,
               header_bytes, kMaxHeaderBytes);
  if (header_bytes > static_cast<std::uint64_t>(size_ - 8))
    fail_input("{}: declares a header of {} bytes, but only {} follow; was it cut off?", file, header_bytes,
               size_ - 8);
  const auto data_begin = static_cast<std::int64_t>(8 + header_bytes);
  if (mapping == Mapping::by_tensor) file_ = MappedFile(path, 0, data_begin);
  const std::string_view header(reinterpret_cast<const char*>(file_.bytes().data()) + 8, header_bytes);
  if (!header.starts_with('{'))
    fail_input("{}: the header does not begin with '{{'; is it a safetensors file?", file);
  // The tokenizer below would take a zero byte for the end of the text.
  if (const auto zero = header.find('\0'); zero != header.npos)
    fail_input("{}: the header holds a zero byte at byte {}", file, zero + 8);

  HeaderReader reader(file);
  if (!Json::sax_parse(header.begin(), header.end(), &reader))
    fail_input("{}: the header is not valid JSON", file);
  metadata_ = std::move(reader.metadata);
  const std::int64_t data_bytes = size_ - data_begin;
  std::vector<PlacedTensor> placed;
  placed.reserve(reader.entries.size());
  for (Entry& entry : reader.entries) placed.push_back(check_entry(file, entry, data_bytes));

  // An empty tensor lies before a full one that begins at the same place.
  std::ranges::sort(placed, [](const PlacedTensor& a, const PlacedTensor& b) {
    return std::tuple(a.begin, a.bytes, std::string_view(a.tensor.name)) <
           std::tuple(b.begin, b.bytes, std::string_view(b.tensor.name));
  });
  std::int64_t expected = 0;
  for (const PlacedTensor& tensor : placed) {
    if (tensor.begin != expected)
      fail_input("{}: tensor {} begins at data byte {}, expected {}, where the one before it ends", file,
                 quote(tensor.tensor.name), tensor.begin, expected);
    expected += tensor.bytes;
  }
  if (expected != data_bytes)
    fail_input("{}: holds {} bytes of data, but its tensors only {}", file, data_bytes, expected);

  if (mapping == Mapping::by_tensor) by_tensor_ = std::make_shared<ByTensor>();
  tensors_.reserve(placed.size());
  for (PlacedTensor& tensor : placed) {
    tensors_.push_back(std::move(tensor.tensor));
    const std::int64_t begin = data_begin + tensor.begin;
    if (!by_tensor_) {
      tensors_.back().view.data =
          file_.bytes().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(tensor.bytes));
      continue;
    }
    by_tensor_->begins.push_back(begin);
    by_tensor_->bytes.push_back(tensor.bytes);
  }
  if (by_tensor_) by_tensor_->maps.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorView* SafetensorsFile::describe(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second].view;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  const std::size_t i = found->second;
  if (by_tensor_) {
    const std::lock_guard lock(by_tensor_->mutex);
    MappedFile& map = by_tensor_->maps[i];
    if (map.size() != by_tensor_->bytes[i]) {
      map = MappedFile(path(), by_tensor_->begins[i], by_tensor_->bytes[i]);
      tensors_[i].view.data = map.bytes();
    }
  }
  return &tensors_[i].view;
}

void SafetensorsFile::drop(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return;
  const std::size_t i = found->second;
  if (!by_tensor_) return file_.drop(tensors_[i].view.data);
  const std::lock_guard lock(by_tensor_->mutex);
  tensors_[i].view.data = {};
  by_tensor_->maps[i] = MappedFile();
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  fail_input("{}: has no tensor {}", path(), quote(name));
}

}  // namespace halfbyte
