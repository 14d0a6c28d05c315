// What max_pool2d, avg_pool2d and global_avg_pool share: an operation around the device's PoolOp.
#pragma once

#include "layers/support.h"
#include "layers/window.h"

#include <memory>

namespace gpipe::layers {

device::PoolSpec pool_spec(device::PoolSpec::Kind kind, const Shape& image, const Window& window, const Placement& at);
std::unique_ptr<Operation> pool_operation(const device::PoolSpec& spec, const PlanContext& context);

/// Every window must touch the input: padding less than the kernel. Throws ConfigError.
void check_pool(const char* layer, const Window& window, const Placement& at);

}  // namespace gpipe::layers
