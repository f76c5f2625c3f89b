// Writing safetensors: the header is known before the first tensor, so tensors go straight to their places.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/sha256.h"
#include "io/text.h"

namespace halfbyte {

namespace {

// Order of the reference writer: later in this list comes first in the file. Wide types first keeps all
// aligned.
constexpr std::array kRank{DType::boolean, DType::u8,      DType::i8,  DType::f8_e5m2,
                           DType::f8_e4m3, DType::f8_e8m0, DType::i16, DType::u16,
                           DType::f16,     DType::bf16,    DType::i32, DType::u32,
                           DType::f32,     DType::f64,     DType::i64, DType::u64};
static_assert(kRank.size() == kDTypes.size());

auto rank(DType dtype) { return std::ranges::find(kRank, dtype) - kRank.begin(); }

std::string json_text(std::string_view text) { return Json(text).dump(); }

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& target, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata, Unfinished unfinished)
    : file_(target, unfinished), specs_(std::move(tensors)) {
  std::ranges::sort(specs_, [](const TensorSpec& a, const TensorSpec& b) {
    const auto rank_a = rank(a.dtype), rank_b = rank(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  std::string header = "{";
  const auto check_text = [&](std::string_view text) {
    if (!is_utf8(text))
      fail_input("{}: the name {} cannot be written, since it is not UTF-8", file_.path(), quote(text));
  };
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      check_text(key);
      check_text(value);
      header += json_text(key) + ":" + json_text(value) + ",";
    }
    header.back() = '}';
    header += ',';
  }
  std::int64_t offset = 0;
  for (const TensorSpec& spec : specs_) {
    check_text(spec.name);
    const auto elements = checked_count(spec.shape);
    const auto bytes = elements ? checked_mul(*elements, dtype_bytes(spec.dtype)) : std::nullopt;
    if (!bytes || __builtin_add_overflow(offset, *bytes, &file_bytes_))
      fail_input("{}: tensor {} with the shape {} is too large to be written", file_.path(), quote(spec.name),
                 to_string(spec.shape));
    header +=
        json_text(spec.name) + ":{\"dtype\":\"" + std::string(dtype_name(spec.dtype)) + "\",\"shape\":[";
    for (std::size_t i = 0; i < spec.shape.size(); ++i)
      header += fmt::format("{}{}", i ? "," : "", spec.shape[i]);
    header += fmt::format("],\"data_offsets\":[{},{}]}},", offset, offset + *bytes);
    if (spec.name == "__metadata__" || !places_.add(spec.name, offset, *bytes))
      fail_input("{}: the tensor name {} cannot be written{}", file_.path(), quote(spec.name),
                 spec.name == "__metadata__" ? "" : " twice");
    offset += *bytes;
  }
  if (header.size() > 1)
    header.back() = '}';
  else
    header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > 100'000'000)
    fail_input("{}: {} tensors need a header longer than the format allows", file_.path(), specs_.size());
  const auto length = static_cast<std::uint64_t>(header.size());
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&length, 1)));
  hash.update(header);
  header_sha256_ = hash.finish();
  const auto data_begin = static_cast<std::int64_t>(8 + header.size());
  places_.move_all(data_begin);
  file_bytes_ = data_begin + offset;
}

std::string SafetensorsWriter::take_over(std::string_view name) {
  constexpr std::int64_t kPiece = 1 << 20;
  TensorPlaces::Place& place = places_.at(name, file_);
  Sha256 hash;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kPiece, place.size)));
  for (std::int64_t done = 0; done < place.size;) {
    const auto piece = std::span(buffer).first(static_cast<std::size_t>(std::min(kPiece, place.size - done)));
    file_.read_at(place.begin + done, piece);
    hash.update(piece);
    done += static_cast<std::int64_t>(piece.size());
  }
  place.done = place.size;
  return hash.finish();
}

void SafetensorsWriter::read(std::string_view name, std::span<std::byte> bytes) {
  const TensorPlaces::Place& place = places_.at(name, file_);
  HB_DCHECK(static_cast<std::int64_t>(bytes.size()) == place.size && place.done == place.size);
  file_.read_at(place.begin, bytes);
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  places_.append(name, bytes, file_);
}

void SafetensorsWriter::finish(bool sync) {
  places_.require_complete(specs_, file_);
  file_.commit(sync);
}

}  // namespace halfbyte
