// Turns what the CUDA runtime reports into errors.
#include "core/fail.h"
#include "device/cuda/device.h"

namespace halfbyte::cuda {

void require_device(const char* what) {
  if (available()) return;
  if (!built())
    fail(ErrorKind::device,
         "{} on CUDA: this halfbyte was built without CUDA; build it with -DHALFBYTE_CUDA=ON", what);
  const auto info = device_info();
  if (!info) fail(ErrorKind::device, "{} on CUDA: no CUDA device or driver was found", what);
  fail(ErrorKind::device,
       "{} on CUDA: {} has compute capability {}.{}, for which this build has no code; add it to "
       "HALFBYTE_CUDA_ARCHS",
       what, info->name, info->major, info->minor);
}

void check_status(int status, const char* what) {
  if (status == 0) return;
  const StatusText text = status_text(status);
  fail(text.out_of_memory ? ErrorKind::out_of_memory : ErrorKind::device, "CUDA: {}: {} ({})", what,
       text.text, text.name);
}

}  // namespace halfbyte::cuda
