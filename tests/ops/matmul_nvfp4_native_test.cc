// Native NVFP4 products where there is no device: what is refused before one is asked for.
#include <gtest/gtest.h>

#include <functional>
#include <string_view>

#include "halfbyte/error.h"
#include "ops/matmul_nvfp4_native/cuda.h"

namespace halfbyte {
namespace {

TEST(NativeNvfp4, RefusesShapesAndPointersThatCannotBeRight) {
  alignas(16) std::uint8_t bytes[32] = {};
  const float alpha = 1.0f;
  const cuda::NativeNvfp4Matmul good{.m = 3,
                                     .rows = 16,
                                     .columns = 64,
                                     .activations = bytes,
                                     .activation_scales = bytes,
                                     .weights = bytes,
                                     .weight_scales = bytes,
                                     .alpha = &alpha,
                                     .out = bytes};
  EXPECT_NO_THROW(cuda::check_native_nvfp4(good));
  const auto refused = [&](const std::function<void(cuda::NativeNvfp4Matmul&)>& change,
                           std::string_view part) {
    cuda::NativeNvfp4Matmul call = good;
    change(call);
    try {
      cuda::check_native_nvfp4(call);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_input &&
             std::string_view(error.what()).find(part) != std::string_view::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& c) { c.columns = 48; }, "multiple of 32"));
  EXPECT_TRUE(refused([](auto& c) { c.rows = 12; }, "rows of 8"));
  EXPECT_TRUE(refused([](auto& c) { c.m = 0; }, "0 activations"));
  EXPECT_TRUE(refused([](auto& c) { c.alpha = nullptr; }, "alpha is null"));
  EXPECT_TRUE(refused([](auto& c) { c.weights = nullptr; }, "weights is null"));
  EXPECT_TRUE(refused([&](auto& c) { c.weight_scales = bytes + 4; }, "weight_scales lies 4 bytes"));
}

TEST(NativeNvfp4, SaysWhatIsMissingWhereThereIsNoDevice) {
  if (cuda::available()) GTEST_SKIP() << "there is a device; gpu_native_nvfp4_test asks it";
  try {
    cuda::NativeNvfp4 native;
    FAIL() << "a product without a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
  }
  EXPECT_FALSE(cuda::has_fp4_tensor_cores());
}

}  // namespace
}  // namespace halfbyte
