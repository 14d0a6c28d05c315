// What the device reaches at its best, for estimates: measured once and kept in the user's cache folder. Main thread.
#pragma once

#include "core/device/backend.h"
#include "core/pipeline/estimate.h"

#include <string>
#include <vector>

namespace gpipe::app {

/// The peaks of `device` with `threads` threads: from $XDG_CACHE_HOME/gpipe-train (or ~/.cache/gpipe-train), else measured
/// (about 0.3 s) and put there. A cache that cannot be read is measured anew, one that cannot be written is left out. Where
/// there is no memory to measure in, the usual peaks must do. `notes` gets a sentence for the first and the last. DeviceError
/// when the device is not there.
pipeline::DevicePeaks device_peaks(const std::string& device, const device::BackendOptions& options,
                                   std::vector<std::string>& notes);

}  // namespace gpipe::app
