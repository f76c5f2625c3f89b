#include "calibrate/stats_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

#include "core/fail.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace halfbyte {

namespace {

constexpr std::string_view kKind = "halfbyte-stats";
constexpr std::string_view kVersion = "1";
constexpr std::size_t kSum = 64;                       // digits of a SHA-256
constexpr std::string_view kMoment = "second_moment";  // of all inputs or of none
constexpr std::array<std::string_view, 5> kParts{"absmax", "mean_square", "mean_abs", "token_max_histogram",
                                                 "global_absmax"};

template <typename T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path) {}

  CalibrationStats read(bool second_moments) {
    if (text("kind") != kKind || text("version") != kVersion)
      fail_input(
          "{}: not statistics of this version of \"halfbyte calibrate\" (kind {}, version {}); calibrate "
          "again",
          file_.path(), quote(text("kind")), quote(text("version")));
    CalibrationStats stats;
    stats.tokens = number<std::int64_t>("tokens");
    stats.samples = number<std::int64_t>("samples");
    stats.dropped = number<std::int64_t>("dropped");
    stats.seq_len = number<std::int64_t>("seq_len");
    stats.seed = number<std::uint64_t>("seed");
    if (stats.tokens < 1 || stats.samples < 1 || stats.samples > stats.tokens || stats.dropped < 0 ||
        stats.seq_len < 1)
      fail_input("{}: {} tokens in {} samples of {}, {} dropped, cannot be; the file is damaged",
                 file_.path(), stats.tokens, stats.samples, stats.seq_len, stats.dropped);
    const std::string sums = text("sources");
    for (std::size_t i = 0; i < sums.size(); i += kSum + 1) {
      stats.sources.push_back(sums.substr(i, kSum));
      if (stats.sources.back().size() != kSum ||
          stats.sources.back().find_first_not_of("0123456789abcdef") != std::string::npos)
        fail_input("{}: its list of sources is no list of SHA-256 sums; the file is damaged", file_.path());
    }
    std::size_t moments = 0;
    for (const NamedTensor& tensor : file_.tensors()) {
      const std::size_t dot = tensor.name.rfind('.');
      const std::string_view part =
          std::string_view(tensor.name).substr(dot == std::string::npos ? 0 : dot + 1);
      moments += part == kMoment;
      if (dot == std::string::npos || (part != kMoment && std::ranges::find(kParts, part) == kParts.end()))
        fail_input("{}: {} is no statistic; the file is damaged or from elsewhere", file_.path(),
                   quote(tensor.name));
      if (part == "absmax") stats.inputs.emplace(tensor.name.substr(0, dot), InputStats{});
    }
    if (second_moments && moments == 0)
      fail_input("{}: holds no second moments; calibrate again with --hessian", file_.path());
    if (stats.inputs.empty() || file_.tensors().size() - moments != kParts.size() * stats.inputs.size() ||
        (moments && moments != stats.inputs.size()))
      fail_input("{}: {} tensors for {} inputs, expected {} each; the file is damaged", file_.path(),
                 file_.tensors().size(), stats.inputs.size(), kParts.size());
    for (auto& [name, input] : stats.inputs) {
      read_input(name, stats.tokens, input);
      if (second_moments) read_moment(name, input);
    }
    return stats;
  }

 private:
  std::string text(std::string_view key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? "" : found->second;
  }

  template <typename T>
  T number(std::string_view key) const {
    const std::string value = text(key);
    T result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (value.empty() || error != std::errc() || end != value.data() + value.size())
      fail_input("{}: {} is {} in its header, expected a whole number", file_.path(), key, quote(value));
    return result;
  }

  const TensorView& tensor(const std::string& name, DType dtype, const Shape& shape) const {
    const TensorView& view = file_.at(name);
    if (view.dtype != dtype || view.shape != shape)
      fail_input("{}: {} is {} {}, expected {} {}", file_.path(), quote(name), dtype_name(view.dtype),
                 to_string(view.shape), dtype_name(dtype), to_string(shape));
    return view;
  }

  std::vector<float> floats(const std::string& name, const Shape& shape) const {
    const TensorView& view = tensor(name, DType::f32, shape);
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = load<float>(view.data.data(), static_cast<std::int64_t>(i));
      if (!(values[i] >= 0) || std::isinf(values[i]))
        fail_input("{}: {} holds {} at place {}, expected a finite number of 0 or more", file_.path(),
                   quote(name), values[i], i);
    }
    return values;
  }

  void read_input(const std::string& name, std::int64_t tokens, InputStats& input) const {
    const Shape shape = file_.at(name + ".absmax").shape;
    if (shape.size() != 1 || shape[0] < 1)
      fail_input("{}: {} has shape {}, expected one value a channel", file_.path(), quote(name + ".absmax"),
                 to_string(shape));
    input.absmax = floats(name + ".absmax", shape);
    input.mean_square = floats(name + ".mean_square", shape);
    input.mean_abs = floats(name + ".mean_abs", shape);
    input.global_absmax = floats(name + ".global_absmax", {})[0];
    const float largest = *std::max_element(input.absmax.begin(), input.absmax.end());
    if (input.global_absmax != (largest > 0 ? largest : kZeroInputAbsmax))
      fail_input("{}: {} is {}, but the largest of its channels {}; the file is damaged", file_.path(),
                 quote(name + ".global_absmax"), input.global_absmax, largest);
    const TensorView& histogram = tensor(name + ".token_max_histogram", DType::i64, {kTokenMaxBins});
    std::int64_t left = tokens;
    for (std::size_t bin = 0; bin < kTokenMaxBins; ++bin) {
      input.token_max_histogram[bin] =
          load<std::int64_t>(histogram.data.data(), static_cast<std::int64_t>(bin));
      if (input.token_max_histogram[bin] < 0 || input.token_max_histogram[bin] > left)
        fail_input("{}: {} counts {} in bin {}, expected the {} tokens in all", file_.path(),
                   quote(name + ".token_max_histogram"), input.token_max_histogram[bin], bin, tokens);
      left -= input.token_max_histogram[bin];
    }
    if (left)
      fail_input("{}: {} counts {} tokens, expected {}", file_.path(), quote(name + ".token_max_histogram"),
                 tokens - left, tokens);
  }

  void read_moment(const std::string& stem, InputStats& input) const {
    const std::string name = stem + "." + std::string(kMoment);
    const auto channels = static_cast<std::int64_t>(input.absmax.size());
    const TensorView& view = tensor(name, DType::f32, {channels, channels});
    input.second_moment.resize(static_cast<std::size_t>(view.elements()));
    std::memcpy(input.second_moment.data(), view.data.data(), view.data.size());
    for (std::int64_t j = 0; j < channels; ++j)
      for (std::int64_t k = 0; k <= j; ++k) {
        const float value = input.second_moment[static_cast<std::size_t>(j * channels + k)],
                    mirrored = input.second_moment[static_cast<std::size_t>(k * channels + j)];
        if (!std::isfinite(value) || value != mirrored || (j == k && value < 0))
          fail_input(
              "{}: {} holds {} and {} at ({}, {}) and across, expected a symmetric matrix of finite numbers",
              file_.path(), quote(name), value, mirrored, j, k);
      }
  }

  SafetensorsFile file_;
};

}  // namespace

void write_stats(const std::filesystem::path& path, const CalibrationStats& stats) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, input] : stats.inputs) {
    const Shape shape{static_cast<std::int64_t>(input.absmax.size())};
    for (const char* part : {".absmax", ".mean_square", ".mean_abs"})
      specs.push_back({name + part, DType::f32, shape});
    specs.push_back({name + ".token_max_histogram", DType::i64, {kTokenMaxBins}});
    specs.push_back({name + ".global_absmax", DType::f32, {}});
    if (!input.second_moment.empty())
      specs.push_back({name + "." + std::string(kMoment), DType::f32, {shape[0], shape[0]}});
  }
  std::string sources;
  for (const std::string& sum : stats.sources) sources += (sources.empty() ? "" : " ") + sum;
  SafetensorsWriter writer(path, std::move(specs),
                           {{"kind", std::string(kKind)},
                            {"version", std::string(kVersion)},
                            {"tokens", std::to_string(stats.tokens)},
                            {"samples", std::to_string(stats.samples)},
                            {"dropped", std::to_string(stats.dropped)},
                            {"seq_len", std::to_string(stats.seq_len)},
                            {"seed", std::to_string(stats.seed)},
                            {"sources", sources}});
  for (const auto& [name, input] : stats.inputs) {
    writer.append(name + ".absmax", bytes_of<float>(input.absmax));
    writer.append(name + ".mean_square", bytes_of<float>(input.mean_square));
    writer.append(name + ".mean_abs", bytes_of<float>(input.mean_abs));
    writer.append(name + ".token_max_histogram", bytes_of<std::int64_t>(input.token_max_histogram));
    writer.append(name + ".global_absmax", bytes_of<float>({&input.global_absmax, 1}));
    if (!input.second_moment.empty())
      writer.append(name + "." + std::string(kMoment), bytes_of<float>(input.second_moment));
  }
  writer.finish();
}

CalibrationStats read_stats(const std::filesystem::path& path, bool second_moments) {
  return Reader(path).read(second_moments);
}

}  // namespace halfbyte
