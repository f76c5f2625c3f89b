// Double quantization as a device does it: the code of an absmax value by a table without a search, and when a sum in double
// is exact. The same code runs on the host, where the tests compare it with formats/dynamic8.h.
#pragma once

#include "formats/dynamic8.h"

namespace halfbyte {

// Codes are runs of the codec's places (dynamic8_place). Far from the middle the runs are long: buckets of 256 places, and of
// 64 nearer, hold at most one edge. The 1024 places in the middle have their codes listed.
struct alignas(4) Dynamic8Table {
  static constexpr int kFar = 256, kBuckets = kFar + 128, kMiddle = 1024;
  static constexpr int kNearFirst = 28672, kNearEnd = 36864, kMiddleFirst = 32256, kMiddleEnd = 33280;
  std::uint16_t last[kBuckets];  // place with the bucket's first code; 65,535 where it has no second one
  std::uint8_t code[kBuckets];   // the bucket's first code
  std::uint8_t middle[kMiddle];

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
    for (int b = 0; b < kBuckets; ++b) {
      const int begin = b < kFar ? 256 * b : kNearFirst + 64 * (b - kFar),
                end = begin + (b < kFar ? 256 : 64);
      table.last[b] = 65535;
      for (int code = 255; code >= 0; --code)
        if (first[code] > begin && first[code] < end)
          table.last[b] = static_cast<std::uint16_t>(first[code] - 1);
      for (int code = 0; code < 256; ++code)
        if (first[code] <= begin) table.code[b] = static_cast<std::uint8_t>(code);
    }
    for (int code = 0; code < 256; ++code)
      for (int place = first[code]; place < (code < 255 ? first[code + 1] : 65536); ++place)
        if (place >= kMiddleFirst && place < kMiddleEnd)
          table.middle[place - kMiddleFirst] = static_cast<std::uint8_t>(code);
    return table;
  }

  // Of a place outside the middle.
  HB_HD static constexpr int bucket_of(int place) {
    return place >= kNearFirst && place < kNearEnd ? kFar + (place - kNearFirst) / 64 : place / 256;
  }

  // dynamic8_encode() of a value in [-1, 1].
  HB_HD constexpr std::uint8_t encode(float normalised) const {
    const int place = dynamic8_place(normalised) & 0xFFFF;
    if (place >= kMiddleFirst && place < kMiddleEnd) return middle[place - kMiddleFirst];
    const int b = bucket_of(place);
    return static_cast<std::uint8_t>(code[b] + (place > last[b]));
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
