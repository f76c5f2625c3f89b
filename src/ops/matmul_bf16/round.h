// float32 to BF16 in vectors.
#pragma once

#include <cstdint>

namespace halfbyte {

// out[i] = bf16_encode(x[i]) (formats/bf16.h).
void encode_bf16_row(const float* x, std::uint16_t* out, std::int64_t n);

}  // namespace halfbyte
