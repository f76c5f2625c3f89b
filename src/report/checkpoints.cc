#include "report/checkpoints.h"

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "checkpoint/summary.h"
#include "core/fail.h"

namespace halfbyte {

namespace {

std::string as_text(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<PrecisionRow> precisions_of(const Checkpoint& checkpoint) {
  std::map<std::string, PrecisionRow> rows;
  const auto add = [&](const std::string& precision, std::int64_t tensors, std::int64_t elements,
                       std::int64_t bytes) {
    PrecisionRow& row = rows[precision];
    row.name = precision;
    row.tensors += tensors;
    row.elements += elements;
    row.bytes += bytes;
  };
  for (const std::string& name : checkpoint.names()) {
    const Shape shape = checkpoint.shape(name);
    const std::int64_t bytes = checkpoint.stored_bytes(name);
    const auto found = checkpoint.quantization().tensors.find(name);
    if (found == checkpoint.quantization().tensors.end()) {
      add(std::string(dtype_name(checkpoint.dtype(name))), 1, count(shape), bytes);
      continue;
    }
    const QuantizedInfo& info = found->second;
    const std::int64_t elements =
        info.input.empty()
            ? count(shape)
            : info.shape[0] * checkpoint.quantization().inputs.find(info.input)->second.channels;
    const std::int64_t outliers = info.outliers ? info.shape[0] * info.outliers : 0;
    const std::int64_t outlier_bytes = info.outliers ? stored_bytes_of(outlier_part(info)) : 0;
    add(to_string(info.spec), 1, elements - outliers, bytes - outlier_bytes);
    if (outliers) add(to_string(info.outlier_spec), 0, outliers, outlier_bytes);
  }
  std::vector<PrecisionRow> list;
  for (auto& [name, row] : rows) list.push_back(std::move(row));
  return list;
}

void read_manifest(const std::filesystem::path& file, CheckpointCard& card) {
  const Json manifest = read_json_file(file);
  const std::string where = file.string();
  if (const std::int64_t version = json_int64(manifest, "halfbyte_manifest", where); version != 1)
    fail_input("{}: \"halfbyte_manifest\" is {}, expected 1; a newer halfbyte wrote it", where, version);
  if (json_find(manifest, "run")) {
    const Json& run = json_object(manifest, "run", where);
    card.tool = json_optional_string(run, "tool", where).value_or("");
    for (const char* part : {"model", "stats", "plan"})
      if (const auto sum = json_optional_string(run, part, where))
        card.checksums.emplace_back(std::string(part) + " it was made of", *sum);
    if (json_find(run, "options"))
      for (const auto& [name, value] : json_object(run, "options", where).items())
        card.options.emplace_back(name, as_text(value));
  }
  if (json_find(manifest, "files"))
    for (const auto& [name, value] : json_object(manifest, "files", where).items()) {
      if (const auto sum = json_optional_string(value, "sha256", where))
        card.checksums.emplace_back(name, *sum);
      if (const auto sum = json_optional_string(value, "header_sha256", where))
        card.checksums.emplace_back(name + ", header", *sum);
    }
}

}  // namespace

CheckpointCard read_checkpoint_card(const std::filesystem::path& dir) {
  const Checkpoint checkpoint(dir);
  const CheckpointSummary summary = summarize(checkpoint);
  CheckpointCard card;
  card.dir = dir.string();
  card.weights = summary.weights;
  card.activations = summary.activations;
  card.bits_per_weight = summary.bits_per_weight;
  card.precisions = precisions_of(checkpoint);
  if (std::filesystem::exists(dir / kManifestName)) read_manifest(dir / kManifestName, card);
  return card;
}

}  // namespace halfbyte
