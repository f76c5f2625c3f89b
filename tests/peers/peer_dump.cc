// Writes what halfbyte makes of a model directory, for comparison with the peers' own code:
//   peer_dump MODEL_DIR IDS.safetensors OUT.safetensors
// IDS holds input_ids I32 [windows, T]. OUT: logits F32 [windows, T, vocab], and every quantized tensor decoded, F32, by name.
#include <cstdio>

#include "core/fail.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "ops/dequantize/op.h"

namespace halfbyte {
namespace {

Array<float> window_logits(Model& model, const std::vector<std::int32_t>& ids, ThreadPool& pool) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  KvCache cache(model.config(), rows);
  Array<float> hidden(rows * model.config().hidden), logits(rows * model.config().vocab);
  model.forward(ids, cache, hidden.data(), pool);
  model.logits(hidden.data(), rows, logits.data(), pool);
  return logits;
}

void run(const char* dir, const char* ids_file, const char* out) {
  ThreadPool pool(available_cores());
  Model model = Model::load(dir, pool);
  const SafetensorsFile input(ids_file);
  const TensorView& ids = input.at("input_ids");
  if (ids.dtype != DType::i32 || ids.shape.size() != 2)
    fail_input("{}: input_ids is {} {}, expected I32 [windows, tokens]", ids_file, dtype_name(ids.dtype),
               to_string(ids.shape));
  const Checkpoint checkpoint(dir);
  std::vector<TensorSpec> specs{{"logits", DType::f32, {ids.shape[0], ids.shape[1], model.config().vocab}}};
  for (const auto& [name, info] : checkpoint.quantization().tensors)
    specs.push_back({name, DType::f32, info.shape});
  SafetensorsWriter writer(out, specs, {});
  for (std::int64_t window = 0; window < ids.shape[0]; ++window) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < ids.shape[1]; ++i)
      tokens.push_back(load<std::int32_t>(ids.data.data(), window * ids.shape[1] + i));
    writer.append("logits", window_logits(model, tokens, pool).as_bytes());
  }
  for (const auto& [name, info] : checkpoint.quantization().tensors)
    writer.append(name, dequantize(checkpoint.quantized(name), pool).as_bytes());
  writer.finish();
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: peer_dump MODEL_DIR IDS.safetensors OUT.safetensors\n");
    return 2;
  }
  try {
    halfbyte::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_dump: %s\n", error.what());
    return 2;
  }
  return 0;
}
