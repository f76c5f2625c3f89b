// halfbyte inspect: what a model directory, a checkpoint, a safetensors or a GGUF file holds.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/summary.h"
#include "cli/commands.h"
#include "core/fail.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string path;
  bool summary_only = false;
};

struct Row {
  std::string name, kind, shape;
  std::int64_t elements = 0, bytes = 0;
};

double bits(std::int64_t bytes, std::int64_t elements) {
  return elements ? 8.0 * static_cast<double>(bytes) / static_cast<double>(elements) : 0.0;
}

void print_rows(const std::vector<Row>& rows, bool each) {
  std::size_t width = 6;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  if (each) {
    fmt::print("{:<{}}  {:<24} {:>18} {:>13} {:>12}\n", "tensor", width, "kind", "shape", "bytes",
               "bits/weight");
    for (const Row& row : rows)
      fmt::print("{:<{}}  {:<24} {:>18} {:>13} {:>12.3f}\n", row.name, width, row.kind, row.shape, row.bytes,
                 bits(row.bytes, row.elements));
    fmt::print("\n");
  }
  std::map<std::string, Row> kinds;
  std::map<std::string, std::int64_t> counts;
  Row all;
  for (const Row& row : rows) {
    for (Row* sum : {&kinds[row.kind], &all}) {
      sum->elements += row.elements;
      sum->bytes += row.bytes;
    }
    ++counts[row.kind];
  }
  fmt::print("{:<24} {:>8} {:>14} {:>14} {:>12}\n", "kind", "tensors", "elements", "bytes", "bits/weight");
  for (const auto& [kind, sum] : kinds)
    fmt::print("{:<24} {:>8} {:>14} {:>14} {:>12.3f}\n", kind, counts[kind], sum.elements, sum.bytes,
               bits(sum.bytes, sum.elements));
  fmt::print("{:<24} {:>8} {:>14} {:>14} {:>12.3f}\n", "all", rows.size(), all.elements, all.bytes,
             bits(all.bytes, all.elements));
}

std::string printable(const GgufValue& value) {
  struct Print {
    std::string operator()(std::uint64_t v) const { return std::to_string(v); }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::string_view v) const { return quote(v); }
    std::string operator()(const GgufArray& v) const {
      return fmt::format("{} x {}", v.count, gguf_type_name(v.type));
    }
  };
  return std::visit(Print{}, value.data);
}

std::vector<Row> gguf_rows(const std::string& path) {
  const GgufFile file(path);
  fmt::print("{}: GGUF version {}\n\n", path, file.version());
  for (const auto& [key, value] : file.keys()) fmt::print("{:<44} {}\n", key, printable(value));
  fmt::print("\n");
  std::vector<Row> rows;
  for (const GgufTensor& tensor : file.tensors())
    rows.push_back({std::string(tensor.name), std::string(tensor.type->name), to_string(tensor.shape),
                    count(tensor.shape), static_cast<std::int64_t>(tensor.data.size())});
  return rows;
}

std::vector<Row> safetensors_rows(const std::string& path) {
  const SafetensorsModel model(path);
  std::vector<Row> rows;
  for (const std::string& name : model.names()) {
    const TensorView& view = model.at(name);
    rows.push_back({name, std::string(dtype_name(view.dtype)), to_string(view.shape), view.elements(),
                    static_cast<std::int64_t>(view.data.size())});
  }
  return rows;
}

std::vector<Row> checkpoint_rows(const std::string& path) {
  const Checkpoint checkpoint(path);
  const CheckpointSummary summary = summarize(checkpoint);
  fmt::print("{}: {} model, layers in {}, activations {}, {:.3f} bits a layer weight, {:.1f} MB\n\n", path,
             json_string(checkpoint.config(), "model_type", checkpoint.config_file()), summary.weights,
             summary.activations, summary.bits_per_weight, 1e-6 * static_cast<double>(summary.bytes));
  std::vector<Row> rows;
  for (const std::string& name : checkpoint.names()) {
    const Shape shape = checkpoint.shape(name);
    const TensorView* view = checkpoint.plain(name);
    rows.push_back({name,
                    view ? std::string(dtype_name(view->dtype))
                         : to_string(checkpoint.quantization().tensors.find(name)->second.spec),
                    to_string(shape), count(shape), checkpoint.stored_bytes(name)});
  }
  return rows;
}

void run(const Options& options) {
  if (!std::filesystem::exists(options.path)) fail_input("{}: no such file or directory", options.path);
  const bool directory = std::filesystem::is_directory(options.path);
  std::vector<Row> rows;
  if (directory && std::filesystem::exists(std::filesystem::path(options.path) / "config.json"))
    rows = checkpoint_rows(options.path);
  else if (!directory && options.path.ends_with(".gguf"))
    rows = gguf_rows(options.path);
  else
    rows = safetensors_rows(options.path);
  print_rows(rows, !options.summary_only);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect", "Tensors, formats, bytes and bits per weight of a model or file");
  command->add_option("path", options->path, "Model directory, checkpoint, .safetensors or .gguf file")
      ->required();
  command->add_flag("--summary", options->summary_only, "Only the totals by kind");
  command->footer("Examples:\n  halfbyte inspect smollm2-nvfp4 --summary\n  halfbyte inspect model.gguf");
  command->callback([options] { run(*options); });
}

}  // namespace halfbyte::cli
