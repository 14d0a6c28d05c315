// The operation of a layer with a weight and perhaps a bias, on whatever op the device gives for it.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

/// `by_rows`: the op sees [rows, features] whatever the axes before the last.
std::unique_ptr<Operation> make_weighted_operation(std::unique_ptr<device::WeightedOp> op, bool by_rows);

}  // namespace gpipe::layers
