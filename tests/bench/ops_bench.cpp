// ops_bench [THREADS [f32|tf32|bf16|f16]]: the speed of the CPU leaf's ops alone. Convolutions and linear maps in GFLOP/s (one
// AVX-512 core of the machine the design was measured on reaches about 210), everything else in GB/s of the tensors it must
// touch. Best of several runs, one JSON line a row.
#include "core/device/backend.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace {

using namespace gpipe;
using device::Backend;
using tensor::DType;
using tensor::Shape;
using tensor::TensorView;

double best_seconds(const std::function<void()>& work) {
  work();
  double best = 1e9;
  const auto begin = std::chrono::steady_clock::now();
  for (int run = 0; run < 200; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    best = std::min(best, std::chrono::duration<double>(end - start).count());
    if (std::chrono::duration<double>(end - begin).count() > 0.25) break;
  }
  return best;
}

class Tensors {
 public:
  explicit Tensors(Backend& backend) : backend_(backend) {}
  TensorView make(const Shape& shape, DType type = DType::f32) {
    kept_.push_back(backend_.allocate(static_cast<size_t>(shape.elements()) * 4));
    const TensorView view{kept_.back()->data(), shape, type};
    if (type == DType::f32)
      for (int64_t i = 0; i < view.elements(); ++i) view.f32()[i] = static_cast<float>(i % 17 - 8) * 0.1F;
    return view;
  }
  std::byte* bytes(size_t count) {
    kept_.push_back(backend_.allocate(count));
    return kept_.back()->data();
  }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<device::Memory>> kept_;
};

void row(const std::string& name, const char* what, double amount, const char* unit, double seconds) {
  std::printf("{\"op\": \"%s\", \"pass\": \"%s\", \"%s\": %.1f, \"microseconds\": %.1f}\n", name.c_str(), what, unit,
              amount / seconds * 1e-9, seconds * 1e6);
  std::fflush(stdout);
}

void convolution(Backend& backend, int64_t n, int64_t extent, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                 int64_t groups = 1) {
  const int64_t pad = kernel / 2, result = (extent + 2 * pad - kernel) / stride + 1;
  const device::ConvolutionSpec spec{.in_height = extent,
                                     .in_width = extent,
                                     .in_channels = in,
                                     .out_height = result,
                                     .out_width = result,
                                     .out_channels = out,
                                     .kernel = {kernel, kernel},
                                     .stride = {stride, stride},
                                     .dilation = {1, 1},
                                     .pad_top = pad,
                                     .pad_bottom = pad,
                                     .pad_left = pad,
                                     .pad_right = pad,
                                     .groups = groups,
                                     .bias = false};
  const auto op = backend.convolution(spec, {n});
  Tensors t(backend);
  const TensorView x = t.make({n, extent, extent, in}), y = t.make({n, result, result, out}), none;
  const TensorView dx = t.make(x.shape), w = t.make({out, in / groups, kernel, kernel}), dw = t.make(w.shape);
  std::byte* workspace = t.bytes(op->workspace_bytes());
  const device::Weight weight{w, t.bytes(op->packed_weight_bytes())};
  const device::WeightGradient gradient{dw, t.bytes(op->packed_gradient_bytes())};
  op->pack_weight(w, weight.packed, workspace);
  const double flops = 2.0 * static_cast<double>(y.elements() * in / groups * kernel * kernel);
  const std::string name = fmt::format("conv2d {}x{}x{}x{} to {}, kernel {}, stride {}, groups {}", n, extent, extent, in, out,
                                       kernel, stride, groups);
  row(name, "forward", flops, "gflops", best_seconds([&] { op->forward(x, weight, none, y, workspace); }));
  row(name, "backward_input", flops, "gflops", best_seconds([&] { op->backward_input(y, weight, dx, workspace); }));
  row(name, "backward_weight", flops, "gflops",
      best_seconds([&] { op->backward_weight(x, y, gradient, none, true, workspace); }));
}

void linear(Backend& backend, int64_t n, int64_t in, int64_t out) {
  const auto op = backend.linear({.in_features = in, .out_features = out}, {n});
  Tensors t(backend);
  const TensorView x = t.make({n, in}), y = t.make({n, out}), dx = t.make({n, in});
  const TensorView w = t.make({out, in}), dw = t.make({out, in}), b = t.make({out}), db = t.make({out});
  std::byte* workspace = t.bytes(op->workspace_bytes());
  const device::Weight weight{w, t.bytes(op->packed_weight_bytes())};
  const device::WeightGradient gradient{dw, nullptr};
  op->pack_weight(w, weight.packed, workspace);
  const double flops = 2.0 * static_cast<double>(n * in * out);
  const std::string name = fmt::format("linear {}x{} to {}", n, in, out);
  row(name, "forward", flops, "gflops", best_seconds([&] { op->forward(x, weight, b, y, workspace); }));
  row(name, "backward_input", flops, "gflops", best_seconds([&] { op->backward_input(y, weight, dx, workspace); }));
  row(name, "backward_weight", flops, "gflops", best_seconds([&] { op->backward_weight(x, y, gradient, db, true, workspace); }));
  row(name, "pack_weight", 3.0 * static_cast<double>(w.bytes()), "gb_per_s",
      best_seconds([&] { op->pack_weight(w, weight.packed, workspace); }));
}

void batch_norm(Backend& backend, const Shape& shape) {
  const int64_t channels = shape.back();
  const auto op = backend.batch_norm({.sample = shape.sample()}, {shape[0]});
  Tensors t(backend);
  const TensorView x = t.make(shape), y = t.make(shape), dy = t.make(shape), dx = t.make(shape);
  const TensorView scale = t.make({channels}), shift = t.make({channels}), mean = t.make({channels}),
                   variance = t.make({channels});
  const TensorView dscale = t.make({channels}), dshift = t.make({channels});
  std::byte* workspace = t.bytes(op->workspace_bytes());
  const std::string name = "batch_norm " + shape.text();
  const double bytes = static_cast<double>(x.bytes());
  row(name, "forward", 3 * bytes, "gb_per_s",
      best_seconds([&] { op->forward_train(x, scale, shift, y, mean, variance, workspace); }));
  row(name, "backward", 5 * bytes, "gb_per_s",
      best_seconds([&] { op->backward(x, dy, scale, mean, variance, dx, dscale, dshift, true, workspace); }));
}

/// x [rows, positions, channels].
void group_norm(Backend& backend, int64_t rows, int64_t positions, int64_t channels, int64_t groups) {
  const auto op = backend.group_norm({.positions = positions, .channels = channels, .groups = groups}, {rows});
  Tensors t(backend);
  const TensorView x = t.make({rows, positions, channels}), y = t.make(x.shape), dy = t.make(x.shape), dx = t.make(x.shape);
  const TensorView scale = t.make({channels}), shift = t.make({channels}), dscale = t.make({channels}),
                   dshift = t.make({channels});
  std::byte *saved = t.bytes(op->saved_bytes(rows)), *workspace = t.bytes(op->workspace_bytes());
  const std::string name = fmt::format("group_norm {} in {} groups", x.shape, groups);
  const double bytes = static_cast<double>(x.bytes());
  row(name, "forward", 2 * bytes, "gb_per_s", best_seconds([&] { op->forward(x, scale, shift, y, saved); }));
  row(name, "backward_input", 3 * bytes, "gb_per_s", best_seconds([&] { op->backward_input(x, dy, scale, saved, dx); }));
  row(name, "backward_weight", 2 * bytes, "gb_per_s",
      best_seconds([&] { op->backward_weight(x, dy, saved, dscale, dshift, true, workspace); }));
}

void activation(Backend& backend, const char* word, device::ActivationSpec::Kind kind, const Shape& shape) {
  const auto op = backend.activation({kind});
  Tensors t(backend);
  const TensorView x = t.make(shape), y = t.make(shape), d = t.make(shape);
  const std::string name = std::string(word) + " " + shape.text();
  row(name, "forward", 2.0 * static_cast<double>(x.bytes()), "gb_per_s", best_seconds([&] { op->forward(x, y); }));
  row(name, "backward", 3.0 * static_cast<double>(x.bytes()), "gb_per_s", best_seconds([&] { op->backward(y, x, d); }));
}

void attention(Backend& backend, int64_t n, int64_t length, int64_t heads, int64_t size, bool causal, double dropout) {
  const auto op = backend.attention(
      {.heads = heads, .head_dim = size, .queries = length, .keys = length, .causal = causal, .dropout = dropout}, {n});
  Tensors t(backend);
  const int64_t width = heads * size;
  const TensorView first = t.make({n, length, 3 * width}), qkv = t.make(first.shape), context = t.make({n, length, width});
  const TensorView dcontext = t.make(context.shape), logsumexp = t.make({n, heads, length});
  std::byte* workspace = t.bytes(op->workspace_bytes());
  const device::DropoutKey key;
  const int64_t stride = 3 * width;
  float* at = qkv.f32();
  const device::AttentionInputs in{
      {at, stride}, {at + width, stride}, {at + 2 * width, stride}, {}, dropout > 0 ? &key : nullptr};
  const double product = 2.0 * static_cast<double>(n * length * length * width) / (causal ? 2 : 1);
  const std::string name = fmt::format("attention {}x{}, {} heads of {}{}{}, workspace {} KiB", n, length, heads, size,
                                       causal ? ", causal" : "", dropout > 0 ? ", dropout" : "", op->workspace_bytes() / 1024);
  backend.copy(first, qkv);
  row(name, "forward", 2 * product, "gflops", best_seconds([&] { op->forward(in, context, logsumexp, workspace); }));
  row(name, "backward", 5 * product, "gflops", best_seconds([&] {
        backend.copy(first, qkv);  // the last backward wrote over it
        op->backward(in, context, logsumexp, dcontext, workspace);
      }));
}

void embedding(Backend& backend, int64_t places, int64_t rows, int64_t columns) {
  const auto op = backend.embedding({.rows = rows, .columns = columns});
  Tensors t(backend);
  const TensorView ids = t.make({1, places}, DType::i32), y = t.make({1, places, columns}), table = t.make({rows, columns});
  for (int64_t i = 0; i < places; ++i) ids.i32()[i] = static_cast<int32_t>(i * 7919 % rows);
  const std::string name = fmt::format("embedding {} of {}x{}", places, rows, columns);
  const double bytes = static_cast<double>(y.bytes());
  row(name, "forward", 2 * bytes, "gb_per_s", best_seconds([&] { op->forward(ids, table, y); }));
  row(name, "first backward_weight", static_cast<double>(table.bytes()) + 3 * bytes, "gb_per_s",
      best_seconds([&] { op->backward_weight(ids, y, table, false); }));
  row(name, "backward_weight", 3 * bytes, "gb_per_s", best_seconds([&] { op->backward_weight(ids, y, table, true); }));
}

void others(Backend& backend, const Shape& shape) {
  Tensors t(backend);
  const TensorView x = t.make(shape), y = t.make(shape), z = t.make(shape);
  const double bytes = static_cast<double>(x.bytes());
  row("add " + shape.text(), "forward", 3 * bytes, "gb_per_s", best_seconds([&] { backend.add(x, y, z); }));
  row("copy " + shape.text(), "forward", 2 * bytes, "gb_per_s", best_seconds([&] { backend.copy(x, y); }));
  double squares = 0;
  const device::SumOfSquares sum{x, &squares};
  row("sum_of_squares " + shape.text(), "", bytes, "gb_per_s", best_seconds([&] { backend.sum_of_squares({&sum, 1}); }));
  const auto dropout = backend.dropout({});
  row("dropout " + shape.text(), "forward", 2 * bytes, "gb_per_s", best_seconds([&] { dropout->apply(x, y, {}); }));
  const TensorView slots[] = {y, z};
  const TensorView w = t.make(shape);
  const device::ParameterUpdate momentum{device::MomentumUpdate{.momentum = 0.9F}, w, x, std::span(slots, 1)};
  row("sgd momentum " + shape.text(), "update", 5 * bytes, "gb_per_s", best_seconds([&] { backend.update({&momentum, 1}); }));
  backend.fill(z, 1);
  backend.fill(y, 1);
  const device::ParameterUpdate adam{device::AdamUpdate{}, w, x, slots};
  row("adam " + shape.text(), "update", 7 * bytes, "gb_per_s", best_seconds([&] { backend.update({&adam, 1}); }));
  const int64_t half = shape[1] / 2;
  for (const auto& [word, kind] :
       {std::pair("max_pool2d", device::PoolSpec::Kind::max), {"avg_pool2d", device::PoolSpec::Kind::average}}) {
    const auto pool = backend.pool({kind, shape[1], shape[2], shape[3], half, half, {2, 2}, {2, 2}, 0, 0, 0, 0}, {shape[0]});
    const TensorView small = t.make({shape[0], half, half, shape[3]});
    std::byte* saved = t.bytes(pool->saved_bytes(shape[0]));
    row(fmt::format("{} 2x2 {}", word, shape), "forward", 1.25 * bytes, "gb_per_s",
        best_seconds([&] { pool->forward(x, small, saved, nullptr); }));
    row(fmt::format("{} 2x2 {}", word, shape), "backward", 1.25 * bytes, "gb_per_s",
        best_seconds([&] { pool->backward(small, saved, y, nullptr); }));
  }
}

void moves(Backend& backend, const Shape& shape) {
  Tensors t(backend);
  const Shape sample = shape.sample();
  const TensorView x = t.make(shape), y = t.make(shape);
  const TensorView large = t.make({shape[0], 2 * shape[1], 2 * shape[2], shape[3]});
  const double bytes = static_cast<double>(x.bytes());
  const auto move = [&](const char* name, device::RearrangeSpec spec, double moved) {
    const auto op = backend.rearrange(spec);
    const TensorView to{y.data, spec.output.with_batch(shape[0]), y.dtype};
    row(fmt::format("{} {}", name, shape), "forward", moved, "gb_per_s", best_seconds([&] { op->apply(x, to); }));
  };
  move("shift", {.input = sample, .output = sample, .axes = {0, 1, 2}, .offset = {1, 1, 0}}, 2 * bytes);
  move("half the channels", {.input = sample, .output = {shape[1], shape[2], shape[3] / 2}, .axes = {0, 1, 2}}, bytes);
  move("channels first", {.input = sample, .output = {shape[3], shape[1], shape[2]}, .axes = {2, 0, 1}}, 2 * bytes);
  move("swap rows and columns", {.input = sample, .output = {shape[2], shape[1], shape[3]}, .axes = {1, 0, 2}}, 2 * bytes);
  for (const auto& [word, kind] :
       {std::pair("nearest", device::ResampleSpec::Kind::nearest), {"bilinear", device::ResampleSpec::Kind::bilinear}}) {
    const auto op = backend.resample({kind, shape[1], shape[2], shape[3], 2 * shape[1], 2 * shape[2], {0.5, 0.5}});
    std::byte* workspace = t.bytes(op->workspace_bytes());
    row(fmt::format("upsample {} {}", word, shape), "forward", 5 * bytes, "gb_per_s",
        best_seconds([&] { op->forward(x, large); }));
    row(fmt::format("upsample {} {}", word, shape), "backward", 5 * bytes, "gb_per_s",
        best_seconds([&] { op->backward(large, y, workspace); }));
  }
  const auto softmax = backend.softmax();
  row(fmt::format("softmax {}", shape), "forward", 2 * bytes, "gb_per_s", best_seconds([&] { softmax->forward(x, y); }));
}

}  // namespace

int main(int count, char** words) {
  device::BackendOptions options{.threads = count > 1 ? std::atoi(words[1]) : 1};
  for (size_t i = 0; i < device::k_precision_names.size(); ++i)
    if (count > 2 && std::string(words[2]) == device::k_precision_names[i]) options.precision = static_cast<device::Precision>(i);
  const auto backend = device::open_backend("cpu", options);
  backend->attach_thread();
  for (int64_t n : {4, 16}) {
    convolution(*backend, n, 32, 3, 64, 3, 1);
    convolution(*backend, n, 32, 64, 64, 3, 1);
    convolution(*backend, n, 32, 64, 128, 3, 2);
    convolution(*backend, n, 16, 128, 128, 3, 1);
    convolution(*backend, n, 8, 256, 256, 3, 1);
    convolution(*backend, n, 32, 16, 16, 3, 1);
    convolution(*backend, n, 32, 16, 32, 1, 2);
    convolution(*backend, n, 32, 64, 64, 3, 1, 64);
  }
  for (int64_t n : {4, 16, 64}) linear(*backend, n, 1024, 1024);
  linear(*backend, 16, 256, 10);
  linear(*backend, 4096, 512, 2048);
  for (const bool causal : {false, true})
    for (const double dropout : {0.0, 0.1}) attention(*backend, 1, 1024, 16, 64, causal, dropout);
  attention(*backend, 32, 32, 8, 32, false, 0);
  embedding(*backend, 2048, 32000, 512);
  for (const auto& [channels, groups] : {std::pair<int64_t, int64_t>{4, 4}, {32, 32}, {64, 8}, {256, 1}})
    group_norm(*backend, 8, 32 * 32, channels, groups);
  group_norm(*backend, 1024, 1, 512, 1);
  for (const Shape& shape :
       {Shape{16, 32, 32, 64}, Shape{16, 16, 16, 128}, Shape{16, 8, 8, 256}, Shape{16, 32, 32, 16}, Shape{4, 32, 32, 64}})
    batch_norm(*backend, shape);
  using Kind = device::ActivationSpec::Kind;
  const Shape image{16, 32, 32, 64};
  activation(*backend, "relu", Kind::relu, image);
  activation(*backend, "gelu", Kind::gelu, image);
  activation(*backend, "silu", Kind::silu, image);
  activation(*backend, "tanh", Kind::tanh, image);
  others(*backend, image);
  moves(*backend, image);
  moves(*backend, {16, 32, 32, 3});
}
