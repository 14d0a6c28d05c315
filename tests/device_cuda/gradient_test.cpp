// Gradients on an emulated GPU by themselves, without the CPU.
#include "tests/device_cuda/machine.h"
#include "tests/support/gradient_check.h"

using namespace gpipe::test;

TEST_CASE("every node's gradients on a GPU are the slopes of its forward there") {
  const Machine machine({.delay_us = 0});
  check_gradients("cuda:0");
}
