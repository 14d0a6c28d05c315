// For the files of the schedules: forwards ahead, then a forward and a backward in turn, then the rest. Plain data.
#pragma once

#include "core/pipeline/row_stream.h"

#include <algorithm>

namespace gpipe::pipeline {

class InTurnRow final : public RowStream {
 public:
  struct Shape {
    int ahead = 0;            // forwards before the first pair
    bool split = false;       // backward_input and backward_weight instead of backward
    int weights_put_off = 0;  // a backward_weight follows a backward_input when more than these are still to be done
  };
  InTurnRow(const ScheduleRequest& request, int device, const Shape& shape)
      : micro_batches_(request.micro_batches), device_(device), shape_(shape) {}

  bool next(Task& task) override {
    const bool weight_due = shape_.split && weights_ < backwards_ &&
                            (backwards_ == micro_batches_ || (after_backward_ && backwards_ - weights_ > shape_.weights_put_off));
    after_backward_ = false;
    if (weight_due) {
      task = {Work::backward_weight, weights_++, device_};
    } else if (forwards_ < micro_batches_ && forwards_ <= shape_.ahead + backwards_) {
      task = {Work::forward, forwards_++, device_};
    } else if (backwards_ < micro_batches_) {
      task = {shape_.split ? Work::backward_input : Work::backward, backwards_++, device_};
      after_backward_ = true;
    } else {
      return false;
    }
    return true;
  }

 private:
  int micro_batches_, device_;
  Shape shape_;
  int forwards_ = 0, backwards_ = 0, weights_ = 0;
  bool after_backward_ = false;
};

}  // namespace gpipe::pipeline
