// The operation of a loss, on whatever op the device gives for it.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

/// The gradient is scaled by one over the targets of the whole mini-batch (samples, or tokens that are not ignored), so uneven
/// micro-batches weigh right.
std::unique_ptr<Operation> make_loss_operation(std::unique_ptr<device::LossOp> op);

}  // namespace gpipe::layers
