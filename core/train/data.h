// From the `data:` part of a configuration to open data sets: training, validation, and how both are normalised.
// Called once, before training, on the main thread.
#pragma once

#include "core/train/augment.h"
#include "core/train/dataset.h"
#include "core/train/loader.h"
#include "core/train/options.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::train {

/// Some samples of another data set, under indices of its own from 0.
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices, std::string name);

struct DataSets {
  std::shared_ptr<const Dataset> train;       // null when there were problems
  std::shared_ptr<const Dataset> validation;  // null: none
  Normalization normalization;                // of both, measured on the training set where it is `auto`
  std::vector<std::string> warnings;
};

/// Configuration faults go to `problems`; bad data throws DataError. `types` is the list of data sets that are known.
DataSets open_data(const DataOptions& options, std::span<const DatasetType* const> types, uint64_t seed,
                   base::Problems& problems);

/// Shuffled and augmented, as the options say.
LoaderOptions training_loader(const DataOptions& options, const Normalization& normalization, int64_t batch_size, uint64_t seed);
/// In order, nothing left out, nothing augmented.
LoaderOptions validation_loader(const DataOptions& options, const Normalization& normalization, int64_t batch_size);

}  // namespace gpipe::train
