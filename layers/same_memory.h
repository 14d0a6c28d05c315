// The operation of layers that only read the same block with another shape: flatten, reshape.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

std::unique_ptr<Operation> make_same_memory_operation(device::Backend& backend);

}  // namespace gpipe::layers
