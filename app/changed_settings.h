// Which settings of a run differ from those it had before. Pure functions, any thread.
#pragma once

#include "core/base/tree.h"

#include <string>
#include <vector>

namespace gpipe::app {

/// Of two trees of write_run_config, each difference in what a run's weights depend on (network, data, train, kind of device,
/// micro-batches, threads; not stages, schedule, recompute): "train.learning_rate was 0.1 and is 0.05 now". The number of epochs
/// or steps is left out where the learning rate does not depend on it.
std::vector<std::string> changed_settings(const base::Tree& before, const base::Tree& now);

}  // namespace gpipe::app
