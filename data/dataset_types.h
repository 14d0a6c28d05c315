// The data sets of this program. Adding one: a file in data/ with `const train::DatasetType& NAME_dataset()`, and a line
// in data/list.def.
#pragma once

#include "core/train/dataset.h"

#include <vector>

namespace gpipe::data {

#define GPIPE_DATASET(name) const train::DatasetType& name##_dataset();
#include "data/list.def"
#undef GPIPE_DATASET

/// In the order of the list; the rows live as long as the program.
std::vector<const train::DatasetType*> dataset_types();

}  // namespace gpipe::data
