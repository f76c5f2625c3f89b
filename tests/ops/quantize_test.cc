// quantize against the peers' bytes, and every implementation, instruction set and thread count against the
// reference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "halfbyte/error.h"
#include "ops/dequantize/op.h"
#include "ops/quantize/op.h"
#include "tests/support/golden.h"
#include "tests/support/quantize_cases.h"

namespace halfbyte {
namespace {

using test::Golden;
using test::patterns;
using test::raw;

// Runs body with each implementation forced in turn.
void for_each_kernel(const std::function<void(const std::string&)>& body) {
  for (const KernelRow& row : quantize_kernels()) {
    const std::string name = std::string(row.op) + "/" + std::string(row.name);
    setenv("HALFBYTE_FORCE", name.c_str(), 1);
    body(name);
  }
  unsetenv("HALFBYTE_FORCE");
}

std::vector<float> values_of(const Array<float>& array) { return {array.begin(), array.end()}; }

TEST(QuantizeGolden, Bitsandbytes) {
  const Golden golden("bnb_quant.safetensors");
  ThreadPool pool(2);
  for_each_kernel([&](const std::string& kernel) {
    int compared = 0;
    for (const NamedTensor& tensor : golden.file().tensors()) {
      if (!tensor.name.ends_with(".packed")) continue;
      const std::string base = tensor.name.substr(0, tensor.name.size() - 7);
      const std::string source = base.substr(0, base.find('.'));
      if (source == "edge") continue;  // holds NaN and Inf: below
      const std::string kind = base.substr(source.size() + 1, 3);
      const bool twice = source == "dq";
      const QuantSpec spec{.format = format_from_name(kind),
                           .block_size = std::stoll(base.substr(base.rfind("bs") + 2)),
                           .double_quant = twice};
      const std::vector<float> zeros(37);
      const test::Source zero(DType::f32, {37}, zeros);
      const TensorView& x = source == "zero37" ? zero.view : golden.view(source + ".x");
      QuantizedTensor q = quantize(x, spec, pool);
      EXPECT_EQ(raw(q.codes), golden.bytes(tensor.name)) << kernel << " " << base;
      ++compared;
      if (!twice) {
        EXPECT_EQ(patterns(values_of(q.scales)), patterns(golden.floats(base + ".absmax"))) << base;
      } else {
        const float offset = golden.floats(base + ".offset")[0];
        EXPECT_LE(std::abs(static_cast<int>(float_bits(q.offset)) - static_cast<int>(float_bits(offset))), 2)
            << base;
        if (q.offset == offset) {
          EXPECT_EQ(raw(q.scales8), golden.bytes(base + ".absmax_q")) << base;
          EXPECT_EQ(values_of(q.nested_absmax), golden.floats(base + ".nested_absmax")) << base;
        }
        // Decode what the peer stored: its mean is summed in another order.
        const auto codes = golden.bytes(base + ".absmax_q");
        const auto nested = golden.floats(base + ".nested_absmax");
        std::copy(codes.begin(), codes.end(), q.scales8.begin());
        std::copy(nested.begin(), nested.end(), q.nested_absmax.begin());
        q.offset = offset;
        const auto absmax = golden.floats(base + ".absmax_deq");
        for (std::size_t i = 0; i < absmax.size(); ++i)
          ASSERT_EQ(block_scale_f32(q, static_cast<std::int64_t>(i)), absmax[i]) << base << " " << i;
      }
      for (const auto& [suffix, dtype] :
           {std::pair{".deq_f32", DType::f32}, {".deq_bf16", DType::bf16}, {".deq_f16", DType::f16}}) {
        if (!golden.has(base + suffix)) continue;
        const auto expected = golden.bytes(base + suffix);
        std::vector<std::uint8_t> out(expected.size());
        dequantize_rows(q, 0, 1, dtype, std::as_writable_bytes(std::span(out)), pool);
        EXPECT_EQ(out, expected) << base << suffix;
      }
    }
    EXPECT_EQ(compared, 13);
  });
}

// The edge tensor block by block, without the two blocks that hold NaN and Inf, which quantize refuses.
TEST(QuantizeGolden, BitsandbytesEdges) {
  const Golden golden("bnb_quant.safetensors");
  ThreadPool pool(1);
  const auto x = golden.floats("edge.x");
  for_each_kernel([&](const std::string& kernel) {
    for (const std::string kind : {"nf4", "fp4"}) {
      const auto packed = golden.bytes("edge." + kind + ".bs64.packed");
      const auto absmax = golden.floats("edge." + kind + ".bs64.absmax");
      int refused = 0;
      for (std::size_t first = 0; first < x.size(); first += 64) {
        const std::size_t last = std::min(first + 64, x.size());
        const std::vector<float> block(x.begin() + static_cast<std::ptrdiff_t>(first),
                                       x.begin() + static_cast<std::ptrdiff_t>(last));
        const test::Source source(DType::f32, {static_cast<std::int64_t>(block.size())}, block);
        if (!is_finite(absmax[first / 64])) {
          EXPECT_THROW(quantize(source.view, {.format = format_from_name(kind)}, pool), Error);
          ++refused;
          continue;
        }
        const QuantizedTensor q = quantize(source.view, {.format = format_from_name(kind)}, pool);
        const std::vector<std::uint8_t> expected(
            packed.begin() + static_cast<std::ptrdiff_t>(first / 2),
            packed.begin() + static_cast<std::ptrdiff_t>((last + 1) / 2));
        EXPECT_EQ(raw(q.codes), expected) << kernel << " " << kind << " block " << first / 64;
        EXPECT_EQ(q.scales[0], absmax[first / 64]) << kind << " block " << first / 64;
      }
      EXPECT_EQ(refused, 2);
    }
  });
}

TEST(QuantizeGolden, Linear4bitCheckpoints) {
  const Golden expected("bnb_linear4bit_expected.safetensors");
  ThreadPool pool(2);
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  for (const auto& [tag, spec] : {std::pair<std::string, QuantSpec>{"nf4", {.format = Format::nf4}},
                                  {"nf4_double", {.format = Format::nf4, .double_quant = true}},
                                  {"fp4_odd", {.format = Format::fp4}}}) {
    const Golden file("bnb_linear4bit_" + tag + ".safetensors");
    const TensorView& original = expected.view(tag + ".original");
    const QuantizedTensor q = quantize(original, spec, pool);
    EXPECT_EQ(raw(q.codes), file.bytes(weight)) << tag;
    EXPECT_EQ(spec.double_quant ? raw(q.scales8) : raw(q.scales), file.bytes(weight + ".absmax")) << tag;
    std::vector<std::uint8_t> out(original.data.size());
    dequantize_rows(q, 0, original.shape[0], original.dtype, std::as_writable_bytes(std::span(out)), pool);
    EXPECT_EQ(out, expected.bytes(tag + ".deq")) << tag;
  }
}

TEST(QuantizeGolden, CompressedTensorsNvfp4) {
  const Golden golden("nvfp4.safetensors");
  ThreadPool pool(2);
  const QuantSpec spec{.format = Format::nvfp4, .global_scale = GlobalScaleRule::compressed_tensors};
  for_each_kernel([&](const std::string& kernel) {
    for (const std::string dtype : {"f32", "bf16", "f16"}) {
      const std::string base = dtype + ".ct.";
      const TensorView& w = golden.view(dtype + ".w");
      const QuantizedTensor q = quantize(w, spec, pool);
      EXPECT_EQ(q.global_scale, golden.floats(base + "weight_global_scale")[0]) << base;
      EXPECT_EQ(raw(q.scales8), golden.bytes(base + "weight_scale")) << kernel << " " << base;
      EXPECT_EQ(raw(q.codes), golden.bytes(base + "weight_packed")) << kernel << " " << base;
      std::vector<std::uint8_t> out(static_cast<std::size_t>(w.elements()) * 2);
      dequantize_rows(q, 0, w.shape[0], DType::bf16, std::as_writable_bytes(std::span(out)), pool);
      EXPECT_EQ(out, golden.bytes(base + "deq_bf16")) << base;
      // Activations: a global scale from calibration that some of the values exceed.
      const TensorView& x = golden.view(dtype + ".x");
      const QuantizedTensor a =
          quantize(x, spec, pool, {.global_scale = golden.floats(base + "input_global_scale")[0]});
      EXPECT_EQ(raw(a.scales8), golden.bytes(base + "x_scale")) << kernel << " " << base;
      EXPECT_EQ(raw(a.codes), golden.bytes(base + "x_packed")) << kernel << " " << base;
      std::vector<std::uint8_t> rounded(x.data.size());
      dequantize_rows(a, 0, x.shape[0], x.dtype, std::as_writable_bytes(std::span(rounded)), pool);
      EXPECT_EQ(rounded, golden.bytes(base + "x_fakequant")) << base;
    }
  });
}

TEST(QuantizeGolden, ModelOptNvfp4) {
  const Golden golden("nvfp4.safetensors");
  ThreadPool pool(2);
  const QuantSpec spec{.format = Format::nvfp4, .global_scale = GlobalScaleRule::modelopt};
  for_each_kernel([&](const std::string& kernel) {
    for (const std::string dtype : {"f32", "bf16"}) {
      const std::string base = dtype + ".modelopt.";
      const TensorView& w = golden.view(dtype + ".w");
      const QuantizedTensor q = quantize(w, spec, pool);
      EXPECT_EQ(q.global_scale, golden.floats(base + "weight_scale_2")[0]);
      EXPECT_EQ(raw(q.scales8), golden.bytes(base + "weight_scale")) << kernel << " " << base;
      EXPECT_EQ(raw(q.codes), golden.bytes(base + "weight")) << kernel << " " << base;
      // Equal numbers: ModelOpt decodes code 8 to +0, we to -0.
      const Array<float> ours = dequantize(q, pool);
      const auto peer = golden.floats(base + "deq");
      for (std::size_t n = 0; n < peer.size(); ++n)
        ASSERT_EQ(round_to_dtype(w.dtype, ours[static_cast<std::int64_t>(n)]), peer[n]) << base << n;
    }
  });
}

TEST(QuantizeGolden, CompressedTensorsAndModelOptMx) {
  const Golden golden("mx.safetensors");
  ThreadPool pool(2);
  for_each_kernel([&](const std::string& kernel) {
    for (const std::string dtype : {"f32", "bf16", "f16"}) {
      const TensorView& w = golden.view(dtype + ".w");
      const QuantizedTensor four =
          quantize(w, {.format = Format::mxfp4, .mx_scale = MxScaleRule::compressed_tensors}, pool);
      const std::string base = dtype + ".ct.mxfp4.";
      EXPECT_EQ(raw(four.scales8), golden.bytes(base + "weight_scale")) << kernel << " " << base;
      EXPECT_EQ(raw(four.codes), golden.bytes(base + "weight_packed")) << kernel << " " << base;
      std::vector<std::uint8_t> out(static_cast<std::size_t>(w.elements()) * 2);
      dequantize_rows(four, 0, w.shape[0], DType::bf16, std::as_writable_bytes(std::span(out)), pool);
      EXPECT_EQ(out, golden.bytes(base + "deq_bf16")) << base;
      const QuantizedTensor eight =
          quantize(w, {.format = Format::mxfp8_e4m3, .mx_scale = MxScaleRule::compressed_tensors}, pool);
      EXPECT_EQ(raw(eight.scales8), golden.bytes(dtype + ".ct.mxfp8.weight_scale")) << kernel << " " << dtype;
      EXPECT_EQ(raw(eight.codes), golden.bytes(dtype + ".ct.mxfp8.weight")) << kernel << " " << dtype;
      if (dtype == "f16") continue;
      const QuantizedTensor nv =
          quantize(w, {.format = Format::mxfp4, .mx_scale = MxScaleRule::modelopt}, pool);
      EXPECT_EQ(raw(nv.scales8), golden.bytes(dtype + ".modelopt.mxfp4.scale")) << kernel << " " << dtype;
      EXPECT_EQ(raw(nv.codes), golden.bytes(dtype + ".modelopt.mxfp4.packed")) << kernel << " " << dtype;
    }
  });
}

TEST(QuantizeGolden, TorchaoMxWhereItsDivisorIsTheScale) {
  const Golden golden("mx.safetensors");
  ThreadPool pool(1);
  for (const std::string dtype : {"f32", "bf16"})
    for (const auto rule : {MxScaleRule::floor, MxScaleRule::rceil, MxScaleRule::ceil, MxScaleRule::even})
      for (const Format format : {Format::mxfp4, Format::mxfp8_e4m3}) {
        const std::string base = dtype + ".torchao." + std::string(mx_scale_rule_name(rule)) +
                                 (format == Format::mxfp4 ? ".mxfp4." : ".mxfp8.");
        const QuantizedTensor q =
            quantize(golden.view(dtype + ".w"), {.format = format, .mx_scale = rule}, pool);
        EXPECT_EQ(raw(q.scales8), golden.bytes(base + "scale")) << base;
        const auto data = golden.bytes(base + "data");
        const std::int64_t block_bytes = q.codes.size() / q.scales8.size();
        for (std::int64_t i = 0; i < q.codes.size(); ++i) {
          if (q.scales8[i / block_bytes]) {
            ASSERT_EQ(q.codes[i], data[static_cast<std::size_t>(i)]) << base << i;
          }
        }
      }
}

constexpr std::int64_t kShapes[][2] = {{1, 1},   {1, 15},   {3, 16},   {5, 33},
                                       {7, 130}, {2, 4097}, {4, 4096}, {33, 257}};

TEST(Quantize, EveryTargetAndThreadCountGivesTheReferenceBytes) {
  ThreadPool one(1), three(3);
  int targets = 0;
  for (const auto& [rows, columns] : kShapes)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const test::Source source(
          dtype, {rows, columns},
          test::awkward_values(rows * columns, static_cast<unsigned>(rows * 7 + columns)));
      for (const QuantSpec& spec : test::all_specs()) {
        setenv("HALFBYTE_FORCE", "quantize/reference", 1);
        const auto expected = test::all_bytes(quantize(source.view, spec, one));
        unsetenv("HALFBYTE_FORCE");
        const auto where = to_string(spec) + " " + std::to_string(rows) + "x" + std::to_string(columns) +
                           " " + std::string(dtype_name(dtype));
        targets = 0;
        test::for_each_target([&](const std::string& target) {
          ++targets;
          ASSERT_EQ(test::all_bytes(quantize(source.view, spec, one)), expected) << where << " " << target;
        });
        ASSERT_EQ(test::all_bytes(quantize(source.view, spec, three)), expected) << where << " 3 threads";
      }
    }
  EXPECT_GE(targets, 1);
}

TEST(Quantize, LargeTensorIsSharedAmongThreadsWithoutSeams) {
  const std::int64_t rows = 37, columns = 5000;
  const test::Source source(DType::f32, {rows, columns}, test::awkward_values(rows * columns, 5));
  ThreadPool one(1), four(4);
  for (const QuantSpec& spec : test::all_specs()) {
    setenv("HALFBYTE_FORCE", "quantize/reference", 1);
    const auto expected = test::all_bytes(quantize(source.view, spec, one));
    unsetenv("HALFBYTE_FORCE");
    EXPECT_EQ(test::all_bytes(quantize(source.view, spec, four)), expected) << to_string(spec);
  }
}

// Codes and scale codes are never NaN codes, and the values decode to numbers, whatever the magnitudes.
TEST(Quantize, ExtremeMagnitudesGiveNoNan) {
  ThreadPool pool(1);
  const float largest = std::numeric_limits<float>::max();
  for (const float top : {largest, 2e38f, 1e-12f, pow2f(-100), pow2f(-126), pow2f(-130), pow2f(-149), 0.0f})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      std::vector<float> values(4 * 160);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = (i % 2 ? -top : top) / static_cast<float>(i % 160 < 96 ? 1 + i % 7 : 1000000);
      const test::Source source(dtype, {4, 160}, values);
      float absmax = 0.0f;  // BF16 rounds the largest float32 to Inf
      bool finite = true;
      for (std::int64_t i = 0; i < 640; ++i) {
        const float value = abs_value(load_element(dtype, source.view.data.data(), i));
        finite = finite && is_finite(value);
        absmax = std::max(absmax, value);
      }
      if (!finite) continue;
      for (const QuantSpec& spec : test::all_specs()) {
        const QuantizedTensor q = quantize(source.view, spec, pool);
        const FormatInfo& info = format_info(spec.format);
        for (const std::uint8_t scale : q.scales8) {
          if (info.scale == ScaleKind::e8m0) {
            ASSERT_NE(scale, 255) << to_string(spec) << " " << top;
          }
          if (info.scale == ScaleKind::e4m3_and_global) {
            ASSERT_TRUE(scale > 0 && scale < 0x7F) << to_string(spec);
          }
        }
        for (const std::uint8_t code : q.codes) {
          if (spec.format == Format::mxfp8_e4m3) {
            ASSERT_NE(code & 0x7F, 0x7F) << to_string(spec) << " " << top;
          }
          if (spec.format == Format::mxfp8_e5m2) {
            ASSERT_LT(code & 0x7F, 0x7C) << to_string(spec) << " " << top;
          }
        }
        if (absmax > 3e38f) continue;  // may decode to Inf: rounding up a scale leaves float32
        for (const float value : dequantize(q, pool))
          ASSERT_TRUE(is_finite(value)) << to_string(spec) << " " << top;
      }
    }
}

TEST(Quantize, EmptyTensorsHaveEmptyParts) {
  ThreadPool pool(2);
  for (const Shape& shape : {Shape{0}, Shape{0, 64}, Shape{3, 0}}) {
    const TensorView empty{.dtype = DType::bf16, .shape = shape, .data = {}};
    for (const QuantSpec& spec : test::all_specs()) {
      const QuantizedTensor q = quantize(empty, spec, pool);
      EXPECT_EQ(q.codes.size(), 0);
      EXPECT_EQ(dequantize(q, pool).size(), 0);
    }
  }
}

TEST(Quantize, RefusesNonFiniteValuesWithTheirPlace) {
  ThreadPool pool(2);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      auto values = test::awkward_values(20 * 100, 3);
      values[7 * 100 + 99] = bad;
      std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint16_t half = dtype == DType::f16 ? fp16_encode(values[i]) : bf16_encode(values[i]);
        std::memcpy(bytes.data() + i * static_cast<std::size_t>(dtype_bytes(dtype)),
                    dtype == DType::f32 ? static_cast<const void*>(&values[i]) : &half,
                    static_cast<std::size_t>(dtype_bytes(dtype)));
      }
      for (const QuantSpec& spec : test::all_specs())
        for_each_kernel([&](const std::string& kernel) {
          try {
            quantize({.dtype = dtype, .shape = {20, 100}, .data = bytes}, spec, pool, {.name = "layer.w"});
            FAIL() << to_string(spec) << " " << kernel;
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::bad_input);
            EXPECT_NE(std::string(error.what()).find("layer.w: element 799 (row 7, column 99 of [20, 100])"),
                      std::string::npos)
                << error.what();
          }
        });
    }
}

TEST(Quantize, Bf16KeepsEveryValueAndNan) {
  ThreadPool pool(2);
  const std::vector<float> values{1.0f, -0.0f, 1.00390625f, std::numeric_limits<float>::quiet_NaN(), 3.4e38f};
  const test::Source source(DType::f32, {5}, values);
  const QuantizedTensor q = quantize(source.view, {.format = Format::bf16}, pool);
  const Array<float> back = dequantize(q, pool);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(patterns({back[static_cast<std::int64_t>(i)]}), patterns({round_to_bf16(values[i])}));
}

TEST(Quantize, RefusesWrongInput) {
  ThreadPool pool(1);
  const std::vector<std::byte> bytes(64);
  const QuantSpec nvfp4{.format = Format::nvfp4};
  EXPECT_THROW(quantize({.dtype = DType::i32, .shape = {16}, .data = bytes}, nvfp4, pool), Error);
  EXPECT_THROW(quantize({.dtype = DType::f32, .shape = {17}, .data = bytes}, nvfp4, pool), Error);
  const TensorView view{.dtype = DType::f32, .shape = {16}, .data = bytes};
  EXPECT_THROW(quantize(view, {.format = Format::nvfp4, .block_size = 64}, pool), Error);
  for (const float global : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), 1e37f})
    EXPECT_THROW(quantize(view, nvfp4, pool, {.global_scale = global}), Error) << global;
}

// Same values, one long run of blocks: only a whole tensor's own tail may be a short block.
TEST(Quantize, RaggedRowsHaveTheirOwnShortBlock) {
  ThreadPool pool(1);
  std::vector<float> values(2 * 20, 0.5f);
  values[19] = 12.0f;  // last of row 0, in its short block
  const test::Source source(DType::f32, {2, 20}, values);
  const QuantizedTensor q =
      quantize(source.view, {.format = Format::nvfp4, .global_scale = GlobalScaleRule::amax}, pool,
               {.global_scale = 1.0f});
  ASSERT_EQ(q.scales8.size(), 4);
  EXPECT_EQ(q.scales8[1], e4m3_encode(2.0f));
  EXPECT_EQ(q.scales8[0], e4m3_encode(0.5f / 6.0f));
  EXPECT_EQ(q.scales8[3], q.scales8[2]);
  EXPECT_EQ(q.codes[9], 0x70 | e2m1_encode(0.25f)) << "elements 18 and 19";
}

TEST(Registry, ForcesByNameAndRefusesUnknownNames) {
  const auto rows = quantize_kernels();
  EXPECT_EQ(rows[choose_kernel(rows)].name, "cpu");
  setenv("HALFBYTE_FORCE", "dequantize/cpu,quantize/reference", 1);
  EXPECT_EQ(rows[choose_kernel(rows)].name, "reference");
  setenv("HALFBYTE_FORCE", "quantize/fast", 1);
  try {
    choose_kernel(rows);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quantize/reference"), std::string::npos) << error.what();
  }
  unsetenv("HALFBYTE_FORCE");
  bool found = false;
  for (const KernelRow& row : all_kernels())
    found = found || (row.op == "fake_quantize" && row.name == "cpu");
  EXPECT_TRUE(found);
  const KernelRow nowhere[] = {{"quantize", "cpu", "moon", [] { return false; }}};
  EXPECT_THROW(choose_kernel(nowhere), Error);
}

}  // namespace
}  // namespace halfbyte
