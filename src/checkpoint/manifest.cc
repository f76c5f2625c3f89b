#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "io/file.h"
#include "io/mapped_file.h"
#include "io/output.h"
#include "io/sha256.h"
#include "io/text.h"

namespace halfbyte {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kChecksumKey = "\"checksum\": \"";
constexpr std::size_t kDigits = 64;

bool is_tensor_file(const fs::path& path) { return path.extension() == ".safetensors"; }

std::string sha256_of_file(const fs::path& path) { return sha256(MappedFile(path).bytes()); }

// Of the bytes before the tensors' own.
std::string header_sha256(const SafetensorsFile& file) {
  std::int64_t data = 0;
  for (const NamedTensor& tensor : file.tensors())
    data += tensor.view.elements() * dtype_bytes(tensor.view.dtype);
  return sha256(MappedFile(file.path(), 0, file.size() - data).bytes());
}

// The manifest's checksum and the text it is taken over.
std::pair<std::string, std::string> split_checksum(std::string text, const std::string& file) {
  const std::size_t at = text.find(kChecksumKey);
  if (at == std::string::npos || text.size() < at + kChecksumKey.size() + kDigits)
    fail_input("{}: has no checksum; it is damaged", file);
  const std::string checksum = text.substr(at + kChecksumKey.size(), kDigits);
  text.replace(at + kChecksumKey.size(), kDigits, kDigits, '0');
  return {checksum, text};
}

}  // namespace

Json to_json(const RunRecord& record) {
  return {{"tool", record.tool},
          {"model", record.model},
          {"stats", record.stats.empty() ? Json(nullptr) : Json(record.stats)},
          {"plan", record.plan},
          {"calibration_texts", record.calibration_texts},
          {"options", record.options}};
}

std::string model_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool) {
  const std::vector<std::string> names = checkpoint.files().names();
  std::vector<std::string> sums(names.size());
  pool.parallel_for(static_cast<std::int64_t>(names.size()), [&](std::int64_t i) {
    const std::string& name = names[static_cast<std::size_t>(i)];
    const TensorView& view = checkpoint.files().at(name);
    sums[static_cast<std::size_t>(i)] = fmt::format("{} {} {} {}\n", quote(name), dtype_name(view.dtype),
                                                    to_string(view.shape), sha256(view.data));
    checkpoint.files().drop(name);
  });
  Sha256 all;
  for (const std::string& sum : sums) all.update(sum);
  for (const std::string_view name : kModelFiles) {
    const fs::path path = checkpoint.dir() / name;
    if (fs::exists(path)) all.update(fmt::format("{} {}\n", name, sha256_of_file(path)));
  }
  return all.finish();
}

void write_manifest(const fs::path& dir, Manifest manifest) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name != kManifestName && !manifest.files.contains(name))
      manifest.files[name] = {static_cast<std::int64_t>(entry.file_size()), sha256_of_file(entry.path())};
  }
  Json json = {{"halfbyte_manifest", 1},
               {"checksum", std::string(kDigits, '0')},
               {"run", to_json(manifest.run)},
               {"tensors", manifest.tensors}};
  for (const auto& [name, record] : manifest.files)
    json["files"][name] = {{"bytes", record.bytes},
                           {is_tensor_file(name) ? "header_sha256" : "sha256", record.sha256}};
  std::string text = dump_json(json);
  const std::size_t at = text.find(kChecksumKey);
  text.replace(at + kChecksumKey.size(), kDigits, sha256(text));
  write_text_file(dir / kManifestName, text);
}

void write_manifest(const fs::path& dir, const RunRecord& run, ThreadPool& pool) {
  Manifest manifest{.run = run, .files = {}, .tensors = {}};
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (!is_tensor_file(entry.path())) continue;
    const SafetensorsFile file(entry.path(), Mapping::by_tensor);
    manifest.files[entry.path().filename().string()] = {file.size(), header_sha256(file)};
    std::vector<std::string> sums(file.tensors().size());
    pool.parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t i) {
      const std::string& name = file.tensors()[static_cast<std::size_t>(i)].name;
      sums[static_cast<std::size_t>(i)] = sha256(file.at(name).data);
      file.drop(name);
    });
    for (std::size_t i = 0; i < sums.size(); ++i) manifest.tensors[file.tensors()[i].name] = sums[i];
  }
  write_manifest(dir, std::move(manifest));
}

std::vector<std::string> calibration_texts(const fs::path& dir) {
  std::vector<std::string> sums;
  if (!fs::exists(dir / kManifestName)) return sums;
  const Json json = read_json_file(dir / kManifestName);
  const Json* run = json_find(json, "run");
  const Json* texts = run ? json_find(*run, "calibration_texts") : nullptr;
  if (!texts || !texts->is_array()) return sums;
  for (const Json& sum : *texts)
    if (sum.is_string()) sums.push_back(sum.get<std::string>());
  return sums;
}

std::vector<std::string> check_manifest(const fs::path& dir, ThreadPool& pool) {
  const std::string file = (dir / kManifestName).string();
  if (!fs::exists(file))
    fail_input("{}: is not there, so the checkpoint cannot be compared with what was written", file);
  const std::string text = read_text_file(file);
  const auto [checksum, rest] = split_checksum(text, file);
  if (checksum != sha256(rest)) return {fmt::format("{}: was changed, its checksum does not fit", file)};

  const Json json = parse_json(text, file);
  if (json_int64(json, "halfbyte_manifest", file) != 1)
    fail(ErrorKind::unsupported, "{}: is a manifest of version {}, this build reads 1", file,
         json["halfbyte_manifest"].dump());
  std::vector<std::string> findings;
  bool unread = false;  // a tensor file whose tensors are unknown, so that all would seem to be missing
  std::map<std::string, const Json*> tensors;
  for (const auto& [name, sum] : json_object(json, "tensors", file).items()) tensors.emplace(name, &sum);
  const Json& files = json_object(json, "files", file);
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name != kManifestName && !files.contains(name))
      findings.push_back(
          fmt::format("{}: is not part of the checkpoint as it was written", entry.path().string()));
  }
  for (const auto& [name, record] : files.items()) {
    const fs::path path = dir / name;
    if (!fs::exists(path)) {
      findings.push_back(fmt::format("{}: is missing", path.string()));
      unread = unread || is_tensor_file(name);
      continue;
    }
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
    if (bytes != json_int64(record, "bytes", file)) {
      findings.push_back(
          fmt::format("{}: holds {} bytes, expected {}", path.string(), bytes, record["bytes"].dump()));
      unread = unread || is_tensor_file(name);
      continue;
    }
    if (!is_tensor_file(name)) {
      if (sha256_of_file(path) != json_string(record, "sha256", file))
        findings.push_back(fmt::format("{}: was changed since it was written", path.string()));
      continue;
    }
    try {
      const SafetensorsFile stored(path, Mapping::by_tensor);
      if (header_sha256(stored) != json_string(record, "header_sha256", file))
        findings.push_back(fmt::format("{}: its header was changed since it was written", path.string()));
      std::vector<std::string> wrong(stored.tensors().size());
      pool.parallel_for(static_cast<std::int64_t>(wrong.size()), [&](std::int64_t i) {
        const std::string& tensor = stored.tensors()[static_cast<std::size_t>(i)].name;
        const auto expected = tensors.find(tensor);
        std::string& finding = wrong[static_cast<std::size_t>(i)];
        if (expected == tensors.end())
          finding = fmt::format("{}: holds {}, which was not written", path.string(), quote(tensor));
        else if (*expected->second != sha256(stored.at(tensor).data))
          finding = fmt::format("{}: {} was changed since it was written", path.string(), quote(tensor));
        stored.drop(tensor);
      });
      std::erase(wrong, "");
      findings.insert(findings.end(), wrong.begin(), wrong.end());
      for (const NamedTensor& tensor : stored.tensors()) tensors.erase(tensor.name);
    } catch (const Error& error) {
      findings.push_back(error.what());
      unread = true;
    }
  }
  if (unread) return findings;
  for (const auto& [name, sum] : tensors)
    findings.push_back(fmt::format("{}: no file holds the tensor {}", dir.string(), quote(name)));
  return findings;
}

}  // namespace halfbyte
