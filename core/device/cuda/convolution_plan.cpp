// Which of cuDNN's algorithms a convolution runs with.
#include "core/base/error.h"
#include "core/base/scalar.h"
#include "core/device/cuda/convolution.h"
#include "core/device/cuda/ops.h"

#include <algorithm>
#include <span>
#include <vector>

namespace gpipe::device::cuda {
namespace {

constexpr int most_found = 32;
constexpr size_t most_workspace = size_t{1} << 30;  // an algorithm that wants more is not worth its memory

TensorDescription describe(int64_t batch, int64_t channels, int64_t height, int64_t width, const Context& context) {
  auto description = make<TensorDescription>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor", context.device());
  const auto narrow = [](int64_t extent) { return static_cast<int>(extent); };
  check(cudnnSetTensor4dDescriptor(description.get(), CUDNN_TENSOR_NHWC, context.dnn_type(), narrow(batch), narrow(channels),
                                   narrow(height), narrow(width)),
        "cudnnSetTensor4dDescriptor", context.device());
  return description;
}

std::string describe(const ConvolutionSpec& spec) {
  return fmt::format("{} channels to {}, kernel {}x{}, stride {}x{}, dilation {}x{}, {} groups", spec.in_channels,
                     spec.out_channels, spec.kernel[0], spec.kernel[1], spec.stride[0], spec.stride[1], spec.dilation[0],
                     spec.dilation[1], spec.groups);
}

/// What cuDNN is asked about.
struct Problem {
  const ConvolutionSpec& spec;
  const ConvolutionPlan& plan;
  cudnnFilterDescriptor_t filter;
  cudnnConvolutionDescriptor_t convolution;
  Context& context;

  cudnnHandle_t dnn() const { return context.dnn(); }
  cudnnTensorDescriptor_t x() const { return plan.x.get(); }
  cudnnTensorDescriptor_t y() const { return plan.y.get(); }
};

/// Memory to measure in, full of ordinary numbers; f32 has the most bytes of all precisions.
struct Room {
  Room(const Problem& problem, size_t workspace_bytes)
      : workspace(problem.context.device(), workspace_bytes),
        x(filled(problem, problem.plan.batch * problem.spec.in_height * problem.spec.in_width * problem.spec.in_channels)),
        filter(filled(problem, problem.spec.out_channels * (problem.spec.in_channels / problem.spec.groups) *
                                   problem.spec.kernel[0] * problem.spec.kernel[1])),
        y(filled(problem, problem.plan.batch * problem.spec.out_height * problem.spec.out_width * problem.spec.out_channels)) {}

  DeviceMemory workspace, x, filter, y;

 private:
  static DeviceMemory filled(const Problem& problem, int64_t elements) {
    DeviceMemory memory(problem.context.device(), 4 * static_cast<size_t>(elements));
    fill(problem.context.queue(), {memory.data(), {elements}}, 0.5F);
    return memory;
  }
};

// The three directions: what cuDNN suggests, what it measures, and the workspace it wants.

struct Forward {
  using Performance = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr const char* name = "forward pass";
  static constexpr const char* suggest_call = "cudnnGetConvolutionForwardAlgorithm_v7";
  static cudnnStatus_t suggest(const Problem& p, int* count, Performance* found) {
    return cudnnGetConvolutionForwardAlgorithm_v7(p.dnn(), p.x(), p.filter, p.convolution, p.y(), most_found, count, found);
  }
  static constexpr const char* measure_call = "cudnnFindConvolutionForwardAlgorithmEx";
  static cudnnStatus_t measure(const Problem& p, const Room& room, int* count, Performance* found) {
    return cudnnFindConvolutionForwardAlgorithmEx(p.dnn(), p.x(), room.x.data(), p.filter, room.filter.data(), p.convolution,
                                                  p.y(), room.y.data(), most_found, count, found, room.workspace.data(),
                                                  room.workspace.bytes());
  }
  static constexpr const char* workspace_call = "cudnnGetConvolutionForwardWorkspaceSize";
  static cudnnStatus_t workspace(const Problem& p, cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(p.dnn(), p.x(), p.filter, p.convolution, p.y(), algorithm, bytes);
  }
};

struct InputGradient {
  using Performance = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr const char* name = "input gradient";
  static constexpr const char* suggest_call = "cudnnGetConvolutionBackwardDataAlgorithm_v7";
  static cudnnStatus_t suggest(const Problem& p, int* count, Performance* found) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(p.dnn(), p.filter, p.y(), p.convolution, p.x(), most_found, count, found);
  }
  static constexpr const char* measure_call = "cudnnFindConvolutionBackwardDataAlgorithmEx";
  static cudnnStatus_t measure(const Problem& p, const Room& room, int* count, Performance* found) {
    return cudnnFindConvolutionBackwardDataAlgorithmEx(p.dnn(), p.filter, room.filter.data(), p.y(), room.y.data(), p.convolution,
                                                       p.x(), room.x.data(), most_found, count, found, room.workspace.data(),
                                                       room.workspace.bytes());
  }
  static constexpr const char* workspace_call = "cudnnGetConvolutionBackwardDataWorkspaceSize";
  static cudnnStatus_t workspace(const Problem& p, cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(p.dnn(), p.filter, p.y(), p.convolution, p.x(), algorithm, bytes);
  }
};

struct FilterGradient {
  using Performance = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr const char* name = "weight gradient";
  static constexpr const char* suggest_call = "cudnnGetConvolutionBackwardFilterAlgorithm_v7";
  static cudnnStatus_t suggest(const Problem& p, int* count, Performance* found) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(p.dnn(), p.x(), p.y(), p.convolution, p.filter, most_found, count,
                                                         found);
  }
  static constexpr const char* measure_call = "cudnnFindConvolutionBackwardFilterAlgorithmEx";
  static cudnnStatus_t measure(const Problem& p, const Room& room, int* count, Performance* found) {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(p.dnn(), p.x(), room.x.data(), p.y(), room.y.data(), p.convolution,
                                                         p.filter, room.filter.data(), most_found, count, found,
                                                         room.workspace.data(), room.workspace.bytes());
  }
  static constexpr const char* workspace_call = "cudnnGetConvolutionBackwardFilterWorkspaceSize";
  static cudnnStatus_t workspace(const Problem& p, cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(p.dnn(), p.x(), p.y(), p.convolution, p.filter, algorithm, bytes);
  }
};

template <class Direction>
using Found = std::vector<typename Direction::Performance>;

/// Of an answer of cuDNN, best first: those that may be run. They round no factor further than the precision does, want no more
/// memory than they are worth and, unless the run does without, give the same bits every time.
template <class Performance>
std::vector<Performance> permitted(const Performance* found, int count, const Context& context) {
  std::vector<Performance> list;
  for (const Performance& entry : std::span(found, static_cast<size_t>(count))) {
    const bool wide = entry.mathType == CUDNN_FMA_MATH || entry.mathType == CUDNN_DEFAULT_MATH ||
                      ((context.tf32() || context.narrow()) && entry.mathType == CUDNN_TENSOR_OP_MATH);
    const bool same_bits = entry.determinism == CUDNN_DETERMINISTIC || !context.algorithms().deterministic();
    if (entry.status == CUDNN_STATUS_SUCCESS && wide && same_bits && entry.memory <= most_workspace) list.push_back(entry);
  }
  return list;
}

template <class Direction>
Found<Direction> suggestions(const Problem& problem) {
  typename Direction::Performance found[most_found];
  int count = 0;
  const cudnnStatus_t status = Direction::suggest(problem, &count, found);
  if (CUDNN_STATUS_CATEGORY(status) != CUDNN_STATUS_NOT_SUPPORTED)
    check(status, Direction::suggest_call, problem.context.device());
  Found<Direction> list = permitted(found, count, problem.context);
  if (list.empty())
    throw base::ConfigError("cuDNN has no {}algorithm for the {} of this convolution: {}",
                            problem.context.algorithms().deterministic() ? "deterministic " : "", Direction::name,
                            describe(problem.spec));
  return list;
}

/// As Algorithms keeps it: the number in cuDNN's enumeration.
template <class Performance>
std::string number_of(const Performance& entry) {
  return std::to_string(static_cast<int>(entry.algo));
}

template <class Performance>
const Performance* find(const std::vector<Performance>& list, const std::string& number) {
  for (const Performance& entry : list)
    if (number_of(entry) == number) return &entry;
  return nullptr;
}

/// The fastest of the suggestions as this device runs them now.
template <class Direction>
typename Direction::Performance fastest(const Problem& problem, const Found<Direction>& suggested) {
  size_t bytes = 0;
  for (const auto& entry : suggested) bytes = std::max(bytes, entry.memory);
  const Room room(problem, bytes);
  typename Direction::Performance found[most_found];
  int count = 0;
  check(Direction::measure(problem, room, &count, found), Direction::measure_call, problem.context.device());
  for (const auto& entry : permitted(found, count, problem.context))
    if (find(suggested, number_of(entry)) != nullptr) return entry;
  return suggested.front();  // what could not be measured can still be run
}

/// All that the choice depends on.
std::string key_of(const char* direction, const Problem& problem) {
  const ConvolutionSpec& s = problem.spec;
  return fmt::format(
      "convolution, {}: x {}x{}x{}x{}, kernel {}x{} to {}, stride {}x{}, dilation {}x{}, padding {}x{}, groups {}{}; {}",
      direction, problem.plan.batch, s.in_height, s.in_width, s.in_channels, s.kernel[0], s.kernel[1], s.out_channels,
      s.stride[0], s.stride[1], s.dilation[0], s.dilation[1], s.pad_top, s.pad_left, s.groups,
      problem.context.algorithms().deterministic() ? "" : ", any order of sums", problem.context.platform());
}

template <class Direction, class Algorithm>
void choose(const Problem& problem, Algorithm& algorithm, size_t& bytes) {
  Algorithms& algorithms = problem.context.algorithms();
  const Found<Direction> suggested = suggestions<Direction>(problem);
  const std::string chosen = algorithms.choice(key_of(Direction::name, problem), [&] {
    return number_of(algorithms.measures() ? fastest<Direction>(problem, suggested) : suggested.front());
  });
  const auto* known = find(suggested, chosen);
  if (known == nullptr)
    throw base::ConfigError(
        "algorithm {} was chosen before, as a profile or checkpoint says, for the {} of this convolution, but cuDNN cannot "
        "run it here: {}; measure anew with gpipe-train profile, or leave out --profile-from; a checkpoint's run goes on where "
        "it was made",
        base::shown(chosen), Direction::name, describe(problem.spec));
  algorithm = known->algo;
  check(Direction::workspace(problem, algorithm, &bytes), Direction::workspace_call, problem.context.device());
}

/// Pixels that the windows cover along an axis.
int64_t covered(const ConvolutionSpec& spec, size_t axis, int64_t out) {
  return (out - 1) * spec.stride[axis] + (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
}

}  // namespace

std::string ConvolutionChoice::text(bool input_gradient) const {
  return fmt::format("forward:{} input:{} weight:{}", static_cast<int>(forward),
                     input_gradient ? std::to_string(static_cast<int>(input)) : "-", static_cast<int>(weight));
}

bool needs_frame(const ConvolutionSpec& spec) {
  const auto fits = [&](size_t axis, int64_t in, int64_t out, int64_t before, int64_t after) {
    if (before != after || before < 0) return false;
    const int64_t left = in + 2 * before - ((spec.kernel[axis] - 1) * spec.dilation[axis] + 1);
    return left >= 0 && left / spec.stride[axis] + 1 == out;
  };
  return !fits(0, spec.in_height, spec.out_height, spec.pad_top, spec.pad_bottom) ||
         !fits(1, spec.in_width, spec.out_width, spec.pad_left, spec.pad_right);
}

ConvolutionSpec framed(const ConvolutionSpec& spec) {
  ConvolutionSpec frame = spec;
  frame.in_height = covered(spec, 0, spec.out_height);
  frame.in_width = covered(spec, 1, spec.out_width);
  frame.pad_top = frame.pad_bottom = frame.pad_left = frame.pad_right = 0;
  return frame;
}

ConvolutionPlan::ConvolutionPlan(const ConvolutionSpec& spec, const FilterDescription& filter,
                                 const ConvolutionDescription& convolution, int64_t size, Context& context)
    : batch(size) {
  x = describe(batch, spec.in_channels, spec.in_height, spec.in_width, context);
  y = describe(batch, spec.out_channels, spec.out_height, spec.out_width, context);
  const Problem problem{spec, *this, filter.get(), convolution.get(), context};
  choose<Forward>(problem, choice.forward, choice.forward_bytes);
  if (spec.input_gradient) choose<InputGradient>(problem, choice.input, choice.input_bytes);
  choose<FilterGradient>(problem, choice.weight, choice.weight_bytes);
}

}  // namespace gpipe::device::cuda
