// RemoteTensors: the tensors of a stage that another process has, as they are after Engine::fetch.
#pragma once

#include "core/pipeline/stage.h"

#include <vector>

namespace gpipe::pipeline {

class RemoteTensors {
 public:
  /// In the order of Stage::tensors(), without gradients. Without `memory` all views are null: nothing is known of them here.
  RemoteTensors(const Plan& plan, int stage, bool memory);

  std::vector<StateTensor>& tensors() { return tensors_; }
  size_t parameter_count() const { return parameter_count_; }

 private:
  std::vector<StateTensor> tensors_;
  size_t parameter_count_ = 0;
  std::vector<std::byte> memory_;
};

}  // namespace gpipe::pipeline
