// Host memory of a stage: see device::Memory. Large blocks ask for huge pages, which an arena of gigabytes profits from.
#pragma once

#include "core/device/backend.h"

#include <memory>

namespace gpipe::device::cpu {

std::unique_ptr<Memory> allocate(size_t bytes);
/// Of the machine; 0 when unknown.
int64_t memory_bytes();

}  // namespace gpipe::device::cpu
