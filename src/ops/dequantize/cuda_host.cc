// Host side of dequantize_through_device(); a refusal in a build without CUDA.
#include "ops/dequantize/cuda_host.h"

#include "device/cuda/device.h"

#ifdef HALFBYTE_CUDA
#include <algorithm>
#include <functional>
#include <vector>

#include "device/cuda/memory.h"
#include "ops/dequantize/config.h"
#include "ops/dequantize/cuda.h"
#include "ops/dequantize/launch.h"
#endif

namespace halfbyte::cuda {

#ifdef HALFBYTE_CUDA

namespace {

double median_ms(int repeats, Buffer<std::uint8_t>& flush, const std::function<void()>& call) {
  std::vector<double> times;
  Timer timer;
  call();
  for (int i = 0; i < repeats; ++i) {
    flush.fill(i & 255);
    timer.start();
    call();
    timer.stop();
    times.push_back(timer.milliseconds());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

DeviceTime dequantize_through_device(const HostDequantize& args, int repeats, bool measure_ceilings) {
  require_device("dequantize");
  const Buffer<std::uint8_t> codes(args.codes), scales8(args.scales8);
  const Buffer<float> scales(args.scales), nested(args.nested_absmax), map(args.map);
  const Buffer<float> global(std::span<const float>(&args.global_scale, 1));
  const Buffer<std::byte> out(static_cast<std::int64_t>(args.out.size()));
  Buffer<std::uint8_t> flush(std::int64_t{256} << 20);
  const Dequantize device{.spec = args.spec,
                          .rows = args.rows,
                          .columns = args.columns,
                          .codes = codes.data(),
                          .scales8 = scales8.data(),
                          .scales = scales.data(),
                          .nested_absmax = nested.data(),
                          .map = map.data(),
                          .offset = args.offset,
                          .group = args.group,
                          .global_scale = global.data(),
                          .dtype = args.dtype,
                          .out = out.data()};
  DeviceTime time;
  time.milliseconds = median_ms(std::max(repeats, 1), flush, [&] { dequantize(device, nullptr); });
  out.download(args.out);
  if (measure_ceilings && takes_fast_path(args.spec, args.rows, args.columns)) {
    const DequantizeParams params = dequantize_params(device);
    for (int shape = 0; shape < kBytesShapes; ++shape) {
      const double ms = median_ms(std::max(repeats, 1), flush, [&] {
        check_status(launch_dequantize_bytes(params, args.dtype, args.spec.double_quant, shape, nullptr),
                     "moving bytes");
      });
      time.bytes_milliseconds = shape == 0 ? ms : std::min(time.bytes_milliseconds, ms);
    }
  }
  if (measure_ceilings) {
    const std::int64_t half = flush.size() / 2;
    const double ms = median_ms(std::max(repeats, 1), flush, [&] {
      check_status(cudaMemcpyAsync(flush.data(), flush.data() + half, static_cast<std::size_t>(half),
                                   cudaMemcpyDeviceToDevice, nullptr),
                   "copying on the device");
    });
    time.copy_gbps = 2e-6 * static_cast<double>(half) / ms;
  }
  return time;
}

#else

DeviceTime dequantize_through_device(const HostDequantize&, int, bool) {
  require_device("dequantize");
  return {};
}

#endif

}  // namespace halfbyte::cuda
