// The operation of a loss, on whatever op the device gives for it.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

/// The gradient is scaled by one over the samples of the whole mini-batch, so uneven micro-batches weigh right.
std::unique_ptr<Operation> make_loss_operation(std::unique_ptr<device::LossOp> op);

}  // namespace gpipe::layers
