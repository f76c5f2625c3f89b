// The checkpoints that the peers wrote, copies of them with something changed, and what codes and scales decode to.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_parts.h"
#include "formats/fp4.h"
#include "formats/mxfp4.h"
#include "formats/nf4.h"
#include "formats/nvfp4.h"
#include "formats/packing.h"
#include "formats/source_dtype.h"
#include "tests/support/scratch.h"

namespace halfbyte::test {

inline std::filesystem::path peer_dir(const std::string& name) {
  return std::filesystem::path(HALFBYTE_GOLDEN) / "peers" / name;
}

inline const std::vector<std::string> kPeerCheckpoints{"bitsandbytes_nf4",
                                                       "bitsandbytes_nf4_double",
                                                       "bitsandbytes_fp4",
                                                       "compressed_tensors_nvfp4",
                                                       "compressed_tensors_nvfp4a16",
                                                       "compressed_tensors_mxfp4",
                                                       "compressed_tensors_mxfp4a16",
                                                       "modelopt_nvfp4"};

// Every value by the scalar codecs, rounded to the tensor's own type.
inline std::vector<float> decode(const QuantizedTensor& tensor) {
  const Extent extent = extent_of(tensor.shape);
  const FormatInfo& format = format_info(tensor.spec.format);
  const std::int64_t block = effective_block(tensor.spec, extent.columns);
  std::vector<float> values;
  for (std::int64_t i = 0; i < extent.elements(); ++i) {
    const bool flat = format.axis == BlockAxis::flat;
    const std::uint8_t code =
        nibble(flat ? NibbleOrder::high_first : NibbleOrder::low_first, tensor.codes.data(), i);
    float value = 0;
    if (flat) {
      const float level = tensor.spec.format == Format::nf4 ? nf4_decode(code) : fp4_decode(code);
      value = level * block_scale_f32(tensor, i / block);
    } else {
      const std::uint8_t scale =
          tensor.scales8[i / extent.columns * (extent.columns / block) + i % extent.columns / block];
      value = tensor.spec.format == Format::nvfp4
                  ? nvfp4_decode(code, nvfp4_step(tensor.spec.global_scale, scale, tensor.global_scale))
                  : mxfp4_decode(code, e8m0_decode(scale));
    }
    values.push_back(round_to_dtype(tensor.source, value));
  }
  return values;
}

// All tensors of a file, to be changed and written elsewhere.
struct EditableModel {
  std::vector<StoredTensor> tensors;
  Json config;

  explicit EditableModel(const std::filesystem::path& dir) : config(read_json_file(dir / "config.json")) {
    const SafetensorsFile file(dir / "model.safetensors");
    for (const NamedTensor& tensor : file.tensors())
      tensors.push_back(stored(tensor.name, tensor.view.dtype, tensor.view.shape, tensor.view.data));
  }
  StoredTensor& at(const std::string& name) {
    for (StoredTensor& tensor : tensors)
      if (tensor.spec.name == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }
  void erase(const std::string& name) {
    std::erase_if(tensors, [&](const StoredTensor& tensor) { return tensor.spec.name == name; });
  }
  void write(const std::filesystem::path& dir) const {
    std::vector<TensorSpec> specs;
    for (const StoredTensor& tensor : tensors) specs.push_back(tensor.spec);
    SafetensorsWriter writer(dir / "model.safetensors", specs, {});
    for (const StoredTensor& tensor : tensors) writer.append(tensor.spec.name, tensor.bytes);
    writer.finish();
    write_text_file(dir / "config.json", dump_json(config));
  }
};

// What opening the folder and reading all of it throws.
inline std::string refusal_of(const std::filesystem::path& dir) {
  return message_of([&] {
    const Checkpoint checkpoint(dir);
    for (const std::string& name : checkpoint.names())
      if (checkpoint.is_quantized(name)) checkpoint.quantized(name);
  });
}

}  // namespace halfbyte::test
