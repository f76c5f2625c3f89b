// halfbyte dequantize: a file of the NF4 exercise or a bitsandbytes weight in, plain numbers out, with time and accuracy.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>

#include "cli/commands.h"
#include "cli/options.h"
#include "core/fail.h"
#include "device/cuda/device.h"
#include "formats/fp4.h"
#include "formats/nf4.h"
#include "formats/quantized_tensor.h"
#include "formats/source_dtype.h"
#include "io/bnb_tensor.h"
#include "io/mapped_file.h"
#include "io/nf4_exercise.h"
#include "io/output.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/cuda_host.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"

namespace halfbyte::cli {

namespace {

struct Options {
  std::string input, output, log, compare, make, weights, tensor;
  std::string dtype = "bf16", device = "auto", offset_on = "scale";
  std::int64_t group = 0, rows = 0, columns = 0, block = 64;
  std::uint64_t seed = 1;
  double peer_ms = 0;
  int threads = 1, repeats = 10, samples = 12;
  bool low_first = false;
};

// A doubly or singly quantized matrix from either kind of file.
struct Matrix {
  Format format = Format::nf4;
  Shape shape;
  std::int64_t block = 64, group = 256;
  Array<std::uint8_t> codes, absmax_codes;
  Array<float> absmax, nested, map;
  float offset = 0.0f;
  bool twice() const { return absmax_codes.size() > 0; }
};

DType dtype_of(const std::string& name) {
  return name == "bf16" ? DType::bf16 : name == "fp16" ? DType::f16 : DType::f32;
}

template <typename T>
Array<T> copy_of(const TensorView& view) {
  Array<T> array(view.elements());
  std::memcpy(array.data(), view.data.data(), view.data.size());
  return array;
}

Array<float> widened(const std::vector<std::uint16_t>& halves) {
  Array<float> floats(static_cast<std::int64_t>(halves.size()));
  for (std::size_t i = 0; i < halves.size(); ++i)
    floats[static_cast<std::int64_t>(i)] = fp16_decode(halves[i]);
  return floats;
}

Matrix read_exercise(const Options& options) {
  Nf4Exercise file =
      read_nf4_exercise(options.input, {.group = options.group, .low_nibble_first = options.low_first});
  Matrix matrix;
  matrix.shape = {file.rows, file.columns};
  matrix.block = file.block;
  matrix.group = file.group;
  matrix.codes = std::move(file.codes);
  matrix.absmax_codes = std::move(file.absmax);
  matrix.nested = widened(file.nested);
  matrix.map = widened(file.map);
  matrix.offset = file.offset;
  return matrix;
}

Matrix read_bnb(const Options& options) {
  const SafetensorsFile file(options.input);
  const BnbTensor tensor = read_bnb_tensor(file, options.tensor);
  Matrix matrix;
  matrix.format = tensor.quant_type == "nf4" ? Format::nf4 : Format::fp4;
  for (std::uint8_t code = 0; code < 16; ++code) {
    const float level = load<float>(tensor.quant_map.data.data(), code);
    const float expected = matrix.format == Format::nf4 ? nf4_decode(code) : fp4_decode(code);
    if (level != expected)
      fail(ErrorKind::unsupported,
           "{}: \"{}.quant_map\" has {} for code {}, expected {}: a table of its own is not supported",
           file.path(), tensor.name, level, code, expected);
  }
  matrix.shape = tensor.shape;
  matrix.block = tensor.block;
  matrix.group = tensor.group;
  matrix.codes = copy_of<std::uint8_t>(tensor.codes);
  if (tensor.nested) {
    matrix.absmax_codes = copy_of<std::uint8_t>(tensor.absmax);
    matrix.nested = copy_of<float>(tensor.nested_absmax);
    matrix.map = copy_of<float>(tensor.nested_map);
    matrix.offset = tensor.offset;
  } else {
    matrix.absmax = copy_of<float>(tensor.absmax);
  }
  return matrix;
}

// ---- running --------------------------------------------------------------------------------------------------------

struct Result {
  Array<std::byte> values;
  double milliseconds = 0;
  std::string device;
};

Result run_cpu(Matrix& matrix, const Options& options, DType dtype) {
  QuantizedTensor tensor =
      make_quantized({.format = matrix.format, .block_size = matrix.block}, matrix.shape, dtype);
  const bool on_weight = options.offset_on == "weight";
  std::copy(matrix.codes.begin(), matrix.codes.end(), tensor.codes.begin());
  for (std::int64_t i = 0; i < tensor.scales.size(); ++i)
    tensor.scales[i] =
        matrix.twice() ? dynamic8_decode(matrix.map[matrix.absmax_codes[i]], matrix.nested[i / matrix.group],
                                         on_weight ? 0.0f : matrix.offset)
                       : matrix.absmax[i];
  ThreadPool pool(options.threads);
  const Extent extent = extent_of(matrix.shape);
  Result result{.values = Array<std::byte>(extent.elements() * dtype_bytes(dtype)),
                .device = fmt::format("CPU, {} threads", options.threads)};
  std::vector<double> times;
  for (int i = 0; i < options.repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (on_weight && matrix.offset != 0.0f) {
      const Array<float> values = dequantize(tensor, pool);
      for (std::int64_t k = 0; k < values.size(); ++k) {
        const float value = values[k] + matrix.offset;
        const std::uint16_t code = dtype == DType::bf16 ? bf16_encode(value) : fp16_encode(value);
        if (dtype == DType::f32)
          std::memcpy(result.values.data() + 4 * k, &value, 4);
        else
          std::memcpy(result.values.data() + 2 * k, &code, 2);
      }
    } else {
      dequantize_rows(tensor, 0, extent.rows, dtype, result.values.span(), pool);
    }
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  result.milliseconds = times[times.size() / 2];
  return result;
}

Result run_cuda(const Matrix& matrix, const Options& options, DType dtype) {
  if (options.offset_on == "weight" && matrix.offset != 0.0f)
    fail(ErrorKind::unsupported, "--offset-on weight is a reading for the CPU only; use --device cpu");
  const Extent extent = extent_of(matrix.shape);
  Result result;
  result.values = Array<std::byte>(extent.elements() * dtype_bytes(dtype));
  cuda::HostDequantize args;
  args.spec = {.format = matrix.format, .block_size = matrix.block, .double_quant = matrix.twice()};
  args.rows = extent.rows;
  args.columns = extent.columns;
  args.codes = matrix.codes.span();
  args.scales8 = matrix.absmax_codes.span();
  args.scales = matrix.absmax.span();
  args.nested_absmax = matrix.nested.span();
  args.map = matrix.map.span();
  args.offset = matrix.offset;
  args.group = matrix.group;
  args.dtype = dtype;
  args.out = result.values.span();
  result.milliseconds = cuda::dequantize_through_device(args, options.repeats, false).milliseconds;
  result.device = cuda::device_info()->name;
  return result;
}

// ---- accuracy -------------------------------------------------------------------------------------------------------

void compare(const Options& options, const Array<std::byte>& values, DType dtype) {
  const MappedFile reference(options.compare);
  if (reference.size() != values.size())
    fail_input("{}: {} bytes, expected {} to compare with (raw {} values in row order)", reference.path(),
               reference.size(), values.size(), dtype_name(dtype));
  const std::int64_t count = values.size() / dtype_bytes(dtype);
  double absolute = 0, squared = 0, largest = 0;
  std::int64_t identical = 0, largest_at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double ours = load_element(dtype, values.data(), i),
                 theirs = load_element(dtype, reference.bytes().data(), i);
    const std::int64_t size = dtype_bytes(dtype);
    identical += std::memcmp(values.data() + i * size, reference.bytes().data() + i * size,
                             static_cast<std::size_t>(size)) == 0 ||
                 (std::isnan(ours) && std::isnan(theirs));
    const double difference = std::isnan(ours) && std::isnan(theirs) ? 0.0 : std::abs(ours - theirs);
    absolute += difference;
    squared += difference * difference;
    if (!(difference <= largest)) {
      largest = difference;
      largest_at = i;
    }
  }
  fmt::print("\naccuracy against {}\n", reference.path());
  fmt::print("  mean absolute error   {:.10e}\n", absolute / static_cast<double>(count));
  fmt::print("  mean squared error    {:.10e}\n", squared / static_cast<double>(count));
  fmt::print("  maximum difference    {:.10e} (element {})\n", largest, largest_at);
  fmt::print("  identical elements    {} of {} ({:.4f} %)\n\n", identical, count,
             100.0 * static_cast<double>(identical) / static_cast<double>(count));
  fmt::print("{:>14} {:>16} {:>16} {:>12}\n", "element", "reference", "halfbyte", "difference");
  std::mt19937_64 random(options.seed);
  for (int i = 0; i < options.samples && i < count; ++i) {
    const auto at = i < 3 ? i : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    const float ours = load_element(dtype, values.data(), at),
                theirs = load_element(dtype, reference.bytes().data(), at);
    fmt::print("{:>14} {:>16.8g} {:>16.8g} {:>12.4e}\n", at, theirs, ours, std::abs(ours - theirs));
  }
}

// ---- making a file --------------------------------------------------------------------------------------------------

std::uint16_t half(float x) { return fp16_encode_saturating(x); }

void make(const Options& options) {
  ThreadPool pool(options.threads);
  const QuantSpec spec{.format = Format::nf4, .block_size = options.block, .double_quant = true};
  QuantizedTensor tensor;
  if (!options.weights.empty()) {
    const SafetensorsFile file(options.weights);
    if (options.tensor.empty())
      fail_input("--weights needs --tensor, the name of a matrix in {}", file.path());
    tensor = quantize(file.at(options.tensor), spec, pool, {.name = options.tensor, .global_scale = {}});
  } else {
    const auto elements = checked_mul(options.rows, options.columns);
    if (!elements || *elements == 0)
      fail_input("--make needs --rows and --columns, or --weights and --tensor");
    Array<float> values(*elements);
    std::mt19937_64 random(options.seed);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (float& value : values) value = normal(random);
    tensor =
        quantize({.dtype = DType::f32, .shape = {options.rows, options.columns}, .data = values.as_bytes()},
                 spec, pool);
  }
  const Extent extent = extent_of(tensor.shape);
  Nf4Exercise file;
  file.rows = extent.rows;
  file.columns = extent.columns;
  file.block = options.block;
  file.codes = std::move(tensor.codes);
  file.absmax = std::move(tensor.scales8);
  for (const float value : tensor.nested_absmax) file.nested.push_back(half(value));
  for (const float value : kDynamic8Map) file.map.push_back(half(value));
  file.offset = tensor.offset;
  write_nf4_exercise(options.make, file, options.low_first);
  fmt::print("{}: {} x {} values in blocks of {}, {} bytes\n", options.make, file.rows, file.columns,
             file.block, nf4_exercise_bytes(file.elements(), file.block, file.group));
}

void run(const Options& options) {
  if (!options.make.empty()) return make(options);
  if (options.input.empty()) fail_input("dequantize needs an input file, or --make to make one");
  Matrix matrix = options.input.ends_with(".safetensors") ? read_bnb(options) : read_exercise(options);
  const DType dtype = dtype_of(options.dtype);
  const bool on_device = options.device == "cuda" || (options.device == "auto" && cuda::available());
  const Result result = on_device ? run_cuda(matrix, options, dtype) : run_cpu(matrix, options, dtype);
  const Extent extent = extent_of(matrix.shape);
  const QuantSpec spec{.format = matrix.format, .block_size = matrix.block, .double_quant = matrix.twice()};
  const double bytes = static_cast<double>(cuda::dequantize_bytes(spec, extent.rows, extent.columns, dtype));
  const std::string speed_up =
      options.peer_ms > 0 ? fmt::format("speed_up {:.3f}\n", options.peer_ms / result.milliseconds) : "";
  const std::string report =
      fmt::format("device {}\nmatrix {} {} block {} to {}\ntime_ms {:.6f}\nbandwidth_gbps {:.3f}\n{}",
                  result.device, format_name(matrix.format), to_string(matrix.shape), matrix.block,
                  options.dtype, result.milliseconds, bytes / result.milliseconds * 1e-6, speed_up);
  fmt::print("{}", report);
  if (!options.log.empty()) write_text_file(options.log, report);
  if (!options.output.empty()) {
    OutputFile file(options.output);
    file.write(result.values.as_bytes());
    file.commit();
  }
  if (!options.compare.empty()) compare(options, result.values, dtype);
}

}  // namespace

void add_dequantize(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "dequantize",
      "Decode an NF4 file (the exercise's .bin, or a bitsandbytes weight in .safetensors) to plain numbers");
  command->add_option("input", options->input,
                      "The file: anything but .safetensors is read as the exercise's format");
  command->add_option("-o,--output", options->output, "Raw values in row order");
  command->add_option("--dtype", options->dtype, "Type of the values")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "Where to decode")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--tensor", options->tensor,
                      "Name of the weight in a .safetensors file that holds several");
  command->add_option("--log", options->log, "Write time, effective bandwidth and speed-up here as well");
  command->add_option("--peer-ms", options->peer_ms,
                      "Time of another implementation, for the speed-up in the log");
  command->add_option("--compare", options->compare, "Raw values of a reference: prints an accuracy report");
  command->add_option("--samples", options->samples, "Elements in the report's table")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Runs of which the median time is reported")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      ->add_option("--group", options->group,
                   "Blocks that share a nested absmax (default: from the file's length)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command->add_flag("--low-nibble-first", options->low_first,
                    "The file has the first of two codes in the low nibble");
  command->add_option("--offset-on", options->offset_on, "What the offset is added to")
      ->check(CLI::IsMember({"scale", "weight"}))
      ->capture_default_str();
  command->add_option("--make", options->make, "Make such a file instead, from random numbers or --weights");
  command->add_option("--rows", options->rows, "With --make");
  command->add_option("--columns", options->columns, "With --make");
  command->add_option("--block", options->block, "With --make: block size")
      ->check(CLI::IsMember({32, 64, 128, 256, 512, 1024, 2048, 4096}))
      ->capture_default_str();
  command->add_option("--weights", options->weights,
                      "With --make: a .safetensors file with the matrix --tensor");
  command->add_option("--seed", options->seed, "Of random numbers and sampled elements")
      ->capture_default_str();
  add_threads(*command, options->threads);
  command->callback([options] {
    if (options->group && !std::has_single_bit(static_cast<std::uint64_t>(options->group)))
      fail_input("--group {}: expected a power of two", options->group);
    run(*options);
  });
}

}  // namespace halfbyte::cli
