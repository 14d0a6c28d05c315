// max_pool2d and avg_pool2d differ by one word and one argument: their configuration and layer.
#pragma once

#include "layers/pool.h"

namespace gpipe::layers {

struct Pool2dConfig {
  std::vector<int64_t> kernel_size{1}, stride;  // no stride: the kernel's
  base::Tree padding;
  bool count_include_pad = true;  // avg_pool2d only
  Window window;                  // read from the above

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems);
};

/// The fields of both.
void add_pool_fields(base::FieldSet<Pool2dConfig>& fields);

std::unique_ptr<Layer> pool2d_layer(const char* name, device::PoolSpec::Kind kind, const Pool2dConfig& config);

}  // namespace gpipe::layers
