// Double quantization as a device does it: the code of an absmax value by a table without a search, and when a sum in double
// is exact. The same code runs on the host, where the tests compare it with formats/dynamic8.h.
#pragma once

#include "formats/dynamic8.h"

namespace halfbyte {

// Codes are runs of the codec's places (dynamic8_place). Far from the middle the runs are long: buckets of 256 places, and of
// 64 nearer, hold at most one edge. The 1024 places in the middle have a bucket each.
struct alignas(16) Dynamic8Table {
  static constexpr int kFar = 256, kNear = 128, kMiddle = 1024;  // buckets
  static constexpr int kNearFirst = 28672, kMiddleFirst = 32256;
  // A bucket's first code in bits 16..23; below them what carries into those when added to a place past the first code's
  // last one.
  std::uint32_t bucket[kFar + kNear + kMiddle];

  static constexpr Dynamic8Table of() {
    Dynamic8Table table{};
    // The first place above each threshold lies next to the threshold's own.
    int first[256] = {};
    for (int i = 0; i < 255; ++i) {
      const float threshold = kDynamic8Thresholds[static_cast<std::size_t>(i)];
      int place = static_cast<int>((threshold + 1.0f) * 32767.5f) - 2;
      while (!(threshold < dynamic8_place_value(place))) ++place;
      first[i + 1] = place;
    }
    auto fill = [&](int bucket, int begin, int end) {
      int code = 255;
      while (first[code] > begin) --code;
      const int last = code < 255 && first[code + 1] < end ? first[code + 1] - 1 : 65535;
      table.bucket[bucket] = static_cast<std::uint32_t>(code << 16 | (65535 - last));
    };
    for (int b = 0; b < kFar; ++b) fill(b, 256 * b, 256 * b + 256);
    for (int b = 0; b < kNear; ++b) fill(kFar + b, kNearFirst + 64 * b, kNearFirst + 64 * b + 64);
    for (int b = 0; b < kMiddle; ++b) fill(kFar + kNear + b, kMiddleFirst + b, kMiddleFirst + b + 1);
    return table;
  }

  HB_HD static constexpr std::uint32_t bucket_of(std::uint32_t place) {
    const std::uint32_t near = place - kNearFirst, middle = place - kMiddleFirst;
    std::uint32_t bucket = place / 256;
    if (near < 64 * kNear) bucket = kFar + near / 64;
    if (middle < kMiddle) bucket = kFar + kNear + middle;
    return bucket;
  }

  // dynamic8_encode() of a value in [-1, 1].
  HB_HD constexpr std::uint8_t encode(float normalised) const {
    const std::uint32_t place = static_cast<std::uint32_t>(dynamic8_place(normalised)) & 0xFFFFu;
    return static_cast<std::uint8_t>((bucket[bucket_of(place)] + place) >> 16);
  }

  // dynamic8_encode_scaled().
  HB_HD constexpr std::uint8_t encode_scaled(float x, float factor) const {
    return factor == 0.0f ? std::uint8_t{0} : encode(dynamic8_normalise(x, factor));
  }
};

// Whether a sum of numbers from 0 up has been exact at every addition in double, in whatever order. Numbers from `smallest`
// up (other than 0) whose lowest `zeros` mantissa bits of float32 are 0 are multiples of 2^(e - 23 + zeros), where 2^e is the
// power of two in `smallest`; a double holds every multiple up to 2^53 of them. Sums only grow and rounding keeps their
// order, so the last one tells.
HB_HD constexpr bool sum_was_exact(double sum, float smallest, int zeros) {
  const int exponent = static_cast<int>(float_bits(smallest) >> 23);
  // (exponent, or 1 for subnormal numbers) - 150 + zeros + 53: always a normal double.
  const auto bound = static_cast<std::uint64_t>((exponent ? exponent : 1) + zeros - 97 + 1023) << 52;
  return sum <= __builtin_bit_cast(double, bound);
}

}  // namespace halfbyte
