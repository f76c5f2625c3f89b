// One 4-bit weight as bitsandbytes stores it in a safetensors file: names, JSON state and lengths checked, bytes untouched.
//   P.weight u8 [ceil(n / 2), 1]; P.weight.absmax f32 [blocks], or u8 with double quantization; P.weight.quant_map f32 [16];
//   then P.weight.nested_absmax f32 [groups] and P.weight.nested_quant_map f32 [256];
//   P.weight.quant_state.bitsandbytes__nf4 (or __fp4): JSON {quant_type, blocksize, dtype, shape, nested_..}
#pragma once

#include <string>
#include <string_view>

#include "io/safetensors.h"

namespace halfbyte {

inline constexpr std::string_view kBnbState = ".quant_state.bitsandbytes__";

// The JSON state, checked.
struct BnbState {
  std::string quant_type;  // "nf4", "fp4"
  std::string dtype;       // of the tensor before, "bfloat16"; empty where the state does not say
  Shape shape;
  std::int64_t block = 64, group = 256;
  bool nested = false;  // double quantization
  float offset = 0.0f;
};

// bytes: the tensor P.weight.quant_state..; where names it in messages. Throws bad_input.
BnbState parse_bnb_state(const TensorView& bytes, const std::string& where);

struct BnbTensor : BnbState {
  std::string name;  // "layers.0.weight"
  TensorView codes, absmax, quant_map, nested_absmax, nested_map;
};

// The weight of that name, or the only one of the file where the name is empty. Throws bad_input.
BnbTensor read_bnb_tensor(const SafetensorsFile& file, std::string_view name);

}  // namespace halfbyte
