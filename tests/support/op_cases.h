// One list of node cases that every check of layers and devices walks: references, product, recompute, PyTorch's numbers.
#pragma once

#include "core/base/tree.h"
#include "core/graph/layer.h"

#include <string>
#include <vector>

namespace gpipe::test {

struct OpCase {
  std::string type;
  std::string arguments;  // YAML, "" for none
  std::vector<tensor::Shape> inputs;
  std::vector<int64_t> micro_batches = {2};
  bool large = false;  // too big for central differences

  std::string text() const;  // "conv2d {kernel_size: 3} [5, 5, 2] x 2"
  base::Tree tree() const;
  bool is_loss() const { return type == "cross_entropy" || type == "mse"; }
};

const std::vector<OpCase>& op_cases();

// The parts of the list, one file each.
void add_window_cases(std::vector<OpCase>& cases);
void add_other_cases(std::vector<OpCase>& cases);

}  // namespace gpipe::test
