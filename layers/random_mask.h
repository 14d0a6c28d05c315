// The operation of dropout, dropout2d and drop_path: zeros at random while training, the rest scaled to keep the mean.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

/// How many are zeroed at a time of training.
struct DropRate {
  double p = 0;
  bool ramp = false;  // from 0 at the first step linearly to p at the last
};

std::unique_ptr<Operation> plan_random_mask(device::DropoutSpec::Grain grain, const DropRate& rate, const PlanContext& context);

}  // namespace gpipe::layers
