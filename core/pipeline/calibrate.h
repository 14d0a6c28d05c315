// What a device reaches at its best, measured in a fraction of a second. One call at a time.
#pragma once

#include "core/device/backend.h"
#include "core/pipeline/estimate.h"

#include <string>

namespace gpipe::pipeline {

/// Runs a convolution (3x3, 64 channels, 28x28), a linear map (1024 to 1024) and an addition too large for the caches, on a
/// thread of its own, for about 0.1 s each, and takes the best of each. A device that is done with the first two in less than
/// half a millisecond gets larger ones: up to 512 images, and 8192 rows of 8192 features (0.8 GB). DeviceError when the device is
/// not there, MemoryError when it has no 256 MiB to spare.
DevicePeaks measure_peaks(const std::string& device, const device::BackendOptions& options);

}  // namespace gpipe::pipeline
