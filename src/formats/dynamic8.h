// Double quantization: absmax values of NF4 and FP4 blocks kept in 8 bits.
//        levels   256 values of the signed "dynamic" map: 0, 1 and for each of 7 decades the midpoints
//                 between evenly spaced points; no -1; sorted in kDynamic8Map below
//        offset   mean of all absmax values, summed in double from first to last, rounded once to float32
//        scale    absmax of R32(absmax - offset) per group of 256 blocks (nested_absmax); the last may be
//                 short
//        value    R32(R32(map[code] * nested_absmax) + offset), two roundings
//        encode   v = R32(x * R32(1 / nested_absmax)) in [-1, 1] is put on a grid of 65,536 points; the code
//                 is the number of map midpoints strictly below that point. Coarse near zero: v = 0 becomes
//                 code 131 (2.1e-5)
//        zero     a group whose absmax is 0, or so small that its reciprocal overflows, has code 0 everywhere
//        source   the CPU path of bitsandbytes 0.50.2, except the offset: a torch mean in another order, up
//                 to 2 ulp away
#pragma once

#include <algorithm>
#include <array>

#include "formats/hd.h"

namespace halfbyte {

inline constexpr std::int64_t kDynamic8Group = 256;

namespace detail {

// a * b + c rounded once: the product of two float32 is exact in double.
constexpr float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
}

constexpr std::array<float, 256> make_dynamic8_map() {
  constexpr float kDecades[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  std::array<float, 256> map{};
  std::size_t size = 0;
  map[size++] = 0.0f;
  map[size++] = 1.0f;
  for (int decade = 0; decade < 7; ++decade) {
    const int points = (1 << decade) + 1;  // evenly spaced from 0.1 to 1
    const float step = (1.0f - 0.1f) / static_cast<float>(points - 1);
    auto point = [&](int k) {
      return k < points / 2 ? fused(step, static_cast<float>(k), 0.1f)
                            : fused(-step, static_cast<float>(points - 1 - k), 1.0f);
    };
    for (int k = 0; k + 1 < points; ++k) {
      const float value = kDecades[decade] * ((point(k) + point(k + 1)) / 2.0f);
      map[size++] = value;
      map[size++] = -value;
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

constexpr std::array<float, 255> make_dynamic8_thresholds(const std::array<float, 256>& map) {
  std::array<float, 255> thresholds{};
  for (std::size_t i = 0; i < thresholds.size(); ++i) thresholds[i] = 0.5f * (map[i] + map[i + 1]);
  return thresholds;
}

}  // namespace detail

inline constexpr std::array<float, 256> kDynamic8Map = detail::make_dynamic8_map();
inline constexpr std::array<float, 255> kDynamic8Thresholds = detail::make_dynamic8_thresholds(kDynamic8Map);

// A value in [-1, 1] is first rounded to one of 65,536 places, 0 at -1 and 65,535 at 1.
HB_HD constexpr int dynamic8_place(float normalised) {
  return static_cast<int>(add_rn(mul_rn(mul_rn(add_rn(normalised, 1.0f), 0.5f), 65535.0f), 0.5f));
}
HB_HD constexpr float dynamic8_place_value(int place) {
  return add_rn(-1.0f, mul_rn(2.0f, static_cast<float>(place)) / 65535.0f);
}

// Code of a value already divided by its group's absmax and clamped to [-1, 1].
constexpr std::uint8_t dynamic8_encode(float normalised) {
  const float value = dynamic8_place_value(dynamic8_place(normalised));
  const auto below = std::lower_bound(kDynamic8Thresholds.begin(), kDynamic8Thresholds.end(), value);
  return static_cast<std::uint8_t>(below - kDynamic8Thresholds.begin());
}

// Factor that normalises a group, 0 for a group that counts as zero.
constexpr float dynamic8_factor(float nested_absmax) {
  return nested_absmax <= pow2f(-128) ? 0.0f : 1.0f / nested_absmax;
}

// x in units of its group, clamped.
HB_HD constexpr float dynamic8_normalise(float x, float factor) {
  const float value = mul_rn(x, factor);
  return value < -1.0f ? -1.0f : value > 1.0f ? 1.0f : value;
}

// Code of x = absmax - offset in a group with that factor.
constexpr std::uint8_t dynamic8_encode_scaled(float x, float factor) {
  return factor == 0.0f ? std::uint8_t{0} : dynamic8_encode(dynamic8_normalise(x, factor));
}

// level is kDynamic8Map[code].
HB_HD constexpr float dynamic8_decode(float level, float nested_absmax, float offset) {
  return add_rn(mul_rn(level, nested_absmax), offset);
}

static_assert(kDynamic8Map[127] == 0.0f && kDynamic8Map[255] == 1.0f &&
              float_bits(kDynamic8Map[128]) == 0x3513A3B7u);
static_assert(dynamic8_encode(0.0f) == 131 && dynamic8_encode(1.0f) == 255 && dynamic8_encode(-1.0f) == 0);

}  // namespace halfbyte
