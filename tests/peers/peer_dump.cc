// Writes what halfbyte makes of a model directory, for comparison with the peers' own code:
//   peer_dump MODEL_DIR IDS.safetensors OUT.safetensors [INPUTS.safetensors]
// IDS holds input_ids I32 [windows, T]. OUT: logits F32 [windows, T, vocab], and every quantized tensor decoded, F32, by name.
// INPUTS holds inputs of linears, F32 [rows, K] by the name of the weight; OUT then has NAME.input, what they are rounded to.
#include <cstdio>

#include "core/fail.h"
#include "io/safetensors.h"
#include "model/engine_input.h"
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

// x [rows, K] as the linear of that weight multiplies it.
Array<float> rounded_input(const Checkpoint& checkpoint, const std::string& name, const TensorView& x,
                           ThreadPool& pool) {
  const QuantizedInfo& info = checkpoint.quantization().tensors.at(name);
  const auto& activations = checkpoint.quantization().activations_of(info);
  if (!activations || x.dtype != DType::f32 || x.shape.size() != 2 || x.shape[1] != info.shape[1])
    fail_input("{}: its input is {} {}, expected F32 [rows, {}], to be rounded", name, dtype_name(x.dtype),
               to_string(x.shape), info.shape[1]);
  const InputTransform input =
      info.input.empty() ? unchanged_input(info.shape[1]) : checkpoint.input(info.input);
  Array<float> values(x.elements()), rounded;
  for (std::int64_t i = 0; i < values.size(); ++i) values[i] = load<float>(x.data.data(), i);
  const std::vector<std::int32_t> residual =
      input.info.residual ? residual_positions(input) : std::vector<std::int32_t>();
  round_input(values.data(), x.shape[0], input.info, residual, *activations, rounded, pool);
  return rounded;
}

void run(const char* dir, const char* ids_file, const char* out, const char* inputs_file) {
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
  std::optional<SafetensorsFile> inputs;
  if (inputs_file) inputs.emplace(inputs_file);
  if (inputs)
    for (const NamedTensor& x : inputs->tensors())
      specs.push_back({x.name + ".input", DType::f32, x.view.shape});
  SafetensorsWriter writer(out, specs, {});
  for (std::int64_t window = 0; window < ids.shape[0]; ++window) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < ids.shape[1]; ++i)
      tokens.push_back(load<std::int32_t>(ids.data.data(), window * ids.shape[1] + i));
    writer.append("logits", window_logits(model, tokens, pool).as_bytes());
  }
  for (const auto& [name, info] : checkpoint.quantization().tensors)
    writer.append(name, dequantize(checkpoint.quantized(name), pool).as_bytes());
  if (inputs)
    for (const NamedTensor& x : inputs->tensors())
      writer.append(x.name + ".input", rounded_input(checkpoint, x.name, x.view, pool).as_bytes());
  writer.finish();
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: peer_dump MODEL_DIR IDS.safetensors OUT.safetensors [INPUTS.safetensors]\n");
    return 2;
  }
  try {
    halfbyte::run(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_dump: %s\n", error.what());
    return 2;
  }
  return 0;
}
