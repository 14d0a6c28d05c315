#include "layers/same_memory.h"

namespace gpipe::layers {
namespace {

class SameMemoryOperation final : public Operation {
 public:
  explicit SameMemoryOperation(device::Backend& backend) : backend_(backend) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true, .pass_through = true}; }
  void forward(const ForwardCall& call, const NodeState&) override {
    if (call.inputs[0].data != call.output.data) backend_.copy(call.inputs[0], call.output);
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0] && call.dx[0].data != call.dy.data) backend_.copy(call.dy, call.dx[0]);
  }

 private:
  device::Backend& backend_;
};

}  // namespace

std::unique_ptr<Operation> make_same_memory_operation(device::Backend& backend) {
  return std::make_unique<SameMemoryOperation>(backend);
}

}  // namespace gpipe::layers
