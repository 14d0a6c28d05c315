#include "data/dataset_types.h"

namespace gpipe::data {

std::vector<const train::DatasetType*> dataset_types() {
  return {
#define GPIPE_DATASET(name) &name##_dataset(),
#include "data/list.def"
#undef GPIPE_DATASET
  };
}

}  // namespace gpipe::data
