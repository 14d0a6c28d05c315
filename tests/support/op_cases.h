// One list of node cases that every check of layers and devices walks: references, product, recompute, PyTorch's numbers.
#pragma once

#include "core/base/tree.h"
#include "core/graph/layer.h"

#include <string>
#include <vector>

namespace gpipe::test {

/// An input of integers: ids below `count`, and the id `special` (padding, an ignored target) for about a share of them.
struct Ids {
  size_t input = 0;
  int64_t count = 1;
  int32_t special = 0;
  double share = 0;
};

struct OpCase {
  std::string type;
  std::string arguments;  // YAML, "" for none
  std::vector<tensor::Shape> inputs;
  std::vector<int64_t> micro_batches = {2};
  bool large = false;    // too big for central differences
  std::vector<Ids> ids;  // the inputs that are integers

  std::string text() const;  // "conv2d {kernel_size: 3} [5, 5, 2] x 2"
  base::Tree tree() const;
  const Ids* ids_of(size_t input) const;  // null: real numbers
  std::vector<tensor::DType> types() const;
  bool is_loss() const { return type == "cross_entropy" || type == "mse"; }
};

const std::vector<OpCase>& op_cases();

// The parts of the list, one file each.
void add_window_cases(std::vector<OpCase>& cases);
void add_move_cases(std::vector<OpCase>& cases);
void add_other_cases(std::vector<OpCase>& cases);
void add_sequence_cases(std::vector<OpCase>& cases);

}  // namespace gpipe::test
