// Which algorithm of cuDNN can do which convolution, with how much workspace, and how fast it claims to be.
#pragma once

#include "tests/emulated_cuda/convolution.h"
#include "tests/emulated_cuda/cudnn_types.h"

#include <string>
#include <vector>

namespace gpipe::emulated {

/// The descriptors of a call on one convolution.
struct ConvolutionProblem {
  const char* call = "";
  Direction direction = Direction::forward;
  cudnnTensorStruct x;
  cudnnFilterStruct filter;
  cudnnConvolutionStruct convolution;
  cudnnTensorStruct y;
};

/// Rows or columns that come out.
int output_size(int size, int pad, int filter, int dilation, int stride);

/// SUCCESS if the sizes, layouts and types fit together; else the status, after a report.
cudnnStatus_t check_problem(const ConvolutionProblem& problem);

ConvolutionShape shape_of(const ConvolutionProblem& problem);

/// "" or why the algorithm cannot do the problem. `algorithm` is a number of the direction's enum.
std::string unsupported(const ConvolutionProblem& problem, int algorithm);
int algorithm_count(Direction direction);
size_t workspace_of(const ConvolutionProblem& problem, int algorithm);
bool deterministic(Direction direction, int algorithm);
SumOrder order_of(Direction direction, int algorithm);
/// What f32 inputs are rounded to under the descriptor's math type, on a GPU with TF32.
Rounding rounding_of(const ConvolutionProblem& problem);

struct AlgorithmEntry {
  int algorithm = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  float time_ms = -1;
  size_t workspace = 0;
  bool is_deterministic = true;
};
/// All algorithms, the fastest first and those that cannot run last. With `measured`, times differ from call to call, and
/// algorithms that need more than `limit` bytes cannot run.
std::vector<AlgorithmEntry> list_algorithms(const ConvolutionProblem& problem, bool measured, size_t limit);

}  // namespace gpipe::emulated
