// An optimizer that also keeps an average of each parameter over the updates, in a slot beyond its own.
#pragma once

#include "core/train/optimizer.h"

#include <memory>

namespace gpipe::train {

/// Exponential moving average of the weights, which evaluation uses: average = d average + (1 - d) weight after update n (from
/// 0), d = min(decay, (1 + n) / (10 + n)), so that the first values are soon forgotten (tf.train.ExponentialMovingAverage with
/// num_updates). `decay` in (0, 1).
std::unique_ptr<Optimizer> averaged(std::unique_ptr<Optimizer> optimizer, double decay);

}  // namespace gpipe::train
