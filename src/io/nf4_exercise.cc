// Reader and writer of the NF4 exercise's binary file; every length is checked against the file before it is used.
#include "io/nf4_exercise.h"

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "core/shape.h"
#include "io/mapped_file.h"
#include "io/output.h"

namespace halfbyte {

namespace {

constexpr std::int64_t kHeader = 20, kMap = 256;

// Bytes of the parts that do not depend on the group size.
std::int64_t fixed_bytes(std::int64_t elements, std::int64_t blocks) {
  return kHeader + ceil_div(elements, 2) + blocks + 2 * kMap + 4;
}

// The largest power of two that gives so many groups; 256 where it does.
std::int64_t group_for(std::int64_t blocks, std::int64_t groups, const std::string& file) {
  if (ceil_div(blocks, 256) == groups) return 256;
  for (std::int64_t group = std::int64_t{1} << 40; group >= 1; group /= 2)
    if (ceil_div(blocks, group) == groups) return group;
  fail_input(
      "{}: {} nested absmax values for {} blocks fit no group size that is a power of two; name it with "
      "--group",
      file, groups, blocks);
}

template <typename T>
void take(const std::byte*& at, T* target, std::int64_t count) {
  std::memcpy(target, at, static_cast<std::size_t>(count) * sizeof(T));
  at += count * static_cast<std::int64_t>(sizeof(T));
}

void swap_nibbles(Array<std::uint8_t>& codes) {
  for (std::uint8_t& byte : codes) byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
}

}  // namespace

std::int64_t nf4_exercise_bytes(std::int64_t elements, std::int64_t block, std::int64_t group) {
  const std::int64_t blocks = ceil_div(elements, block);
  return fixed_bytes(elements, blocks) + 2 * ceil_div(blocks, group);
}

Nf4Exercise read_nf4_exercise(const std::filesystem::path& path, const Nf4ExerciseOptions& options) {
  const MappedFile file(path);
  if (file.size() < kHeader)
    fail_input("{}: {} bytes, too short for the 20-byte header (i64 rows, i64 columns, i32 block size)",
               file.path(), file.size());
  Nf4Exercise matrix;
  const std::byte* at = file.bytes().data();
  std::int32_t block = 0;
  take(at, &matrix.rows, 1);
  take(at, &matrix.columns, 1);
  take(at, &block, 1);
  matrix.block = block;
  const auto elements = checked_mul(matrix.rows, matrix.columns);
  if (!elements || *elements == 0)
    fail_input(
        "{}: header says {} rows of {} columns, expected two positive numbers; is this a file of the NF4 "
        "exercise?",
        file.path(), matrix.rows, matrix.columns);
  if (block < 32 || block > 4096 || (block & (block - 1)))
    fail_input(
        "{}: header says block size {}, expected a power of two from 32 to 4096; is this a file of the NF4 "
        "exercise?",
        file.path(), block);
  if (*elements / 2 > file.size())
    fail_input(
        "{}: {} bytes cannot hold the {} x {} values of its header (two in a byte); the file is truncated or "
        "its header wrong",
        file.path(), file.size(), matrix.rows, matrix.columns);
  const std::int64_t blocks = ceil_div(*elements, matrix.block), fixed = fixed_bytes(*elements, blocks);
  const std::int64_t rest = file.size() - fixed;  // the nested absmax values
  const std::int64_t expected =
      options.group ? 2 * ceil_div(blocks, options.group) : 2 * ceil_div(blocks, std::int64_t{256});
  if (rest < 2 || rest % 2 || rest / 2 > blocks || (options.group && rest != expected))
    fail_input(
        "{}: {} bytes, expected {} for {} x {} values in blocks of {} with groups of {} blocks; the file is "
        "truncated or inconsistent",
        file.path(), file.size(), fixed + expected, matrix.rows, matrix.columns, block,
        options.group ? options.group : 256);
  const std::int64_t groups = rest / 2;
  matrix.group = options.group ? options.group : group_for(blocks, groups, file.path());
  matrix.codes = Array<std::uint8_t>(ceil_div(*elements, 2));
  matrix.absmax = Array<std::uint8_t>(blocks);
  matrix.nested.resize(static_cast<std::size_t>(groups));
  matrix.map.resize(kMap);
  take(at, matrix.codes.data(), matrix.codes.size());
  take(at, matrix.absmax.data(), blocks);
  take(at, matrix.nested.data(), groups);
  take(at, matrix.map.data(), kMap);
  take(at, &matrix.offset, 1);
  if (options.low_nibble_first) swap_nibbles(matrix.codes);
  return matrix;
}

void write_nf4_exercise(const std::filesystem::path& path, const Nf4Exercise& matrix, bool low_nibble_first) {
  const std::int64_t blocks = ceil_div(matrix.elements(), matrix.block);
  if (matrix.codes.size() != ceil_div(matrix.elements(), 2) || matrix.absmax.size() != blocks ||
      static_cast<std::int64_t>(matrix.nested.size()) != ceil_div(blocks, matrix.group) ||
      matrix.map.size() != kMap)
    fail_input("{}: parts of a {} x {} matrix do not have the lengths of the NF4 exercise's file",
               path.string(), matrix.rows, matrix.columns);
  OutputFile file(path);
  const auto block = static_cast<std::int32_t>(matrix.block);
  auto put = [&](const void* data, std::size_t bytes) {
    file.write(std::span(static_cast<const std::byte*>(data), bytes));
  };
  put(&matrix.rows, sizeof matrix.rows);
  put(&matrix.columns, sizeof matrix.columns);
  put(&block, sizeof block);
  if (low_nibble_first) {
    Array<std::uint8_t> codes(matrix.codes.size());
    std::copy(matrix.codes.begin(), matrix.codes.end(), codes.begin());
    swap_nibbles(codes);
    put(codes.data(), static_cast<std::size_t>(codes.size()));
  } else {
    put(matrix.codes.data(), static_cast<std::size_t>(matrix.codes.size()));
  }
  put(matrix.absmax.data(), static_cast<std::size_t>(blocks));
  put(matrix.nested.data(), matrix.nested.size() * 2);
  put(matrix.map.data(), matrix.map.size() * 2);
  put(&matrix.offset, sizeof matrix.offset);
  file.commit();
}

}  // namespace halfbyte
