// A layer that passes its input on and fails when told to: what the fault tests put into a network.
#pragma once

#include "core/graph/network.h"

#include <string>

namespace gpipe::test {

/// Where the next run fails; set before the engine starts, read by stage threads only.
struct Fault {
  int micro = -1;
  bool backward = false;
  bool recompute = false;
};

/// The product's layers and `faulty`, which throws DataError("made to fail") at `fault`.
graph::LayerTypes layers_with_fault(const Fault& fault);
graph::Network network_with_fault(const std::string& yaml, const tensor::Shape& input, int64_t classes, const Fault& fault);

}  // namespace gpipe::test
