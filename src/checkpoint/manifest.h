// halfbyte_manifest.json: what a finished checkpoint is made of, so that any later change of it is found, and where it comes
// from, so that it can be made again.
//
//   "halfbyte_manifest": 1
//   "checksum"  SHA-256 of this file's text with 64 zeros in place of these digits
//   "run"       what it was made from and how (RunRecord)
//   "files"     {NAME: {"bytes", "sha256"}} of every other file; of .safetensors files the SHA-256 of the header instead
//               ("header_sha256"), the rest being the tensors
//   "tensors"   {NAME: SHA-256 of its bytes} of every tensor in all .safetensors files
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/thread_pool.h"
#include "io/json.h"

namespace halfbyte {

inline constexpr const char* kManifestName = "halfbyte_manifest.json";

// What decides the bytes of a result: the same record, the same bytes.
struct RunRecord {
  std::string tool;                                 // "halfbyte 0.1.0"
  std::string model;                                // model_fingerprint of the original
  std::string stats;                                // SHA-256 of the statistics, or empty
  std::string plan;                                 // SHA-256 of the plan's text
  std::vector<std::string> calibration_texts = {};  // SHA-256 of the files that the statistics are of
  std::map<std::string, std::string>
      options;  // as the user gave or left them, for people; the plan says all that counts
};
Json to_json(const RunRecord& record);

// One SHA-256 over configuration, tokenizer and the names, types, shapes and bytes of all tensors.
std::string model_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool);

struct FileRecord {
  std::int64_t bytes = 0;
  std::string sha256;  // of a .safetensors file: of its header
};
struct Manifest {
  RunRecord run;
  std::map<std::string, FileRecord> files;
  std::map<std::string, std::string> tensors;
};

// The calibration_texts of the checkpoint in that folder; empty where nothing is known of any.
std::vector<std::string> calibration_texts(const std::filesystem::path& dir);

// Adds every file of the folder that is not listed yet and writes the manifest there.
void write_manifest(const std::filesystem::path& dir, Manifest manifest);

// The same with the sums of all tensors taken from the folder's own .safetensors files.
void write_manifest(const std::filesystem::path& dir, const RunRecord& run, ThreadPool& pool);

// Everything in which the folder differs from its manifest, as sentences; empty where it is as it was written. Throws where
// there is no manifest.
std::vector<std::string> check_manifest(const std::filesystem::path& dir, ThreadPool& pool);

}  // namespace halfbyte
