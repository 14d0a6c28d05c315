// What a node costs, measured or estimated: plain data, by node of the network.
#pragma once

#include <vector>

namespace gpipe::pipeline {

/// Seconds for one micro-batch of the largest size.
struct NodeProfile {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double backward() const { return backward_input + backward_weight; }
};

}  // namespace gpipe::pipeline
