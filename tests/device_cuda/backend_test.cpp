// A backend on emulated GPUs: its queues, copies between devices, what it does when a call fails, and NaN.
#include "core/base/error.h"
#include "tests/device_cuda/machine.h"
#include "tests/support/device_block.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <deque>
#include <limits>
#include <string>

using namespace gpipe;
using namespace gpipe::test;
using tensor::Shape;
using tensor::TensorView;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

TensorView ids_in(device::Backend& backend, const DeviceBlock& block, const std::vector<int32_t>& ids) {
  TensorView view = block.view();
  view.dtype = tensor::DType::i32;
  write_bytes(backend, ids.data(), view.bytes(), view.data);
  return view;
}

}  // namespace

TEST_CASE("GPUs are counted and described, and one that is not there is refused with exit code 9") {
  const Machine machine({.devices = 3});
  CHECK(device::count_devices("cuda") == 3);
  const std::vector<std::string> lines = device::describe_devices();
  CHECK(lines.size() == 4);
  check_contains(lines[3], {"cuda:2: ", " GiB, CUDA 13.0, cuDNN 9."});
  check_contains(message_of([] { gpu(3); }, base::ExitCode::device), {"cuda:3", "are 3 GPUs", "cuda:0 to cuda:2"});
  const auto backend = gpu(1);
  CHECK(backend->info().kind == "cuda");
  CHECK(backend->info().memory_bytes == int64_t{1} << 30);
  CHECK_FALSE(backend->is_host());
}

TEST_CASE("memory comes zeroed, and a request beyond the device names its bytes and what is free") {
  const Machine machine({.memory_bytes = size_t{64} << 20});
  const auto backend = gpu();
  for (const int64_t count : {1, 25, 70001}) {
    const DeviceBlock block(*backend, {count});
    CHECK(block.values() == std::vector<float>(static_cast<size_t>(count), 0.0F));
  }
  CHECK(backend->allocate(0)->bytes() == 0);
  check_contains(message_of([&] { backend->allocate(size_t{65} << 20); }, base::ExitCode::memory),
                 {"cuda:0 is out of memory", "68157440 bytes were wanted", "are free"});
  const DeviceBlock after(*backend, {10}, noise(1, 10));
  CHECK(after.values() == noise(1, 10));
}

TEST_CASE("ops wait for uploads by their events, and copies to other devices for the ops before them") {
  const Machine machine({.devices = 2, .delay_us = 300});
  const auto one = gpu(0), two = gpu(1);
  CHECK(one->reaches(*gpu(0)));
  CHECK_FALSE(one->reaches(*two));
  CHECK_FALSE(one->reaches(*cpu()));
  const int64_t count = 5000;
  const size_t bytes = static_cast<size_t>(count) * 4;
  const DeviceBlock x(*one, {count}), y(*one, {count}), there(*two, {count}), back(*one, {count});
  const auto pinned = one->allocate_pinned(bytes), result = two->allocate_pinned(bytes);
  const auto uploaded = one->make_event(), sent = one->make_event(), freed = one->make_event();
  for (int round = 0; round < 5; ++round) {
    const std::vector<float> values = noise(static_cast<uint64_t>(round), count);
    std::memcpy(pinned->data(), values.data(), bytes);
    one->upload(pinned->data(), x, *uploaded);
    one->wait(*uploaded);
    one->add(x, x, y);
    one->record(*freed);
    one->send(y, *two, there.view().data, *sent);
    two->wait(*sent);
    two->add(there, there, there);
    two->download(there, result->data());
    two->synchronize();
    std::vector<float> found(values.size());
    std::memcpy(found.data(), result->data(), bytes);
    bool same = true;
    for (size_t i = 0; i < values.size(); ++i) same = same && found[i] == 4 * values[i];
    CHECK(same);
  }
  one->receive(*two, there, back);
  CHECK(back.values() == there.values());
  one->synchronize();
  CHECK(one->seconds_between(*uploaded, *freed) >= 0);
}

TEST_CASE("sums of squares are exact in double, and have the same bits alone and among others, in a few launches") {
  const Machine machine({.delay_us = 0});
  const auto backend = gpu();
  std::vector<std::unique_ptr<DeviceBlock>> blocks;
  std::vector<double> plain;
  for (int i = 0; i < 130; ++i) {
    const int64_t count = i == 3 ? 1100003 : i % 9 == 2 ? 4095 + i % 3 : 1 + 17 * i;
    const std::vector<float> values = noise(static_cast<uint64_t>(i), count);
    plain.push_back(0);
    for (float x : values) plain.back() += static_cast<double>(x) * static_cast<double>(x);
    blocks.push_back(std::make_unique<DeviceBlock>(*backend, tensor::Shape{count}, values));
  }
  const DeviceBlock out(*backend, {4 * 130});
  double* const to = reinterpret_cast<double*>(out.view().data);
  std::vector<device::SumOfSquares> sums;
  for (size_t round = 0; round < 2; ++round)
    for (size_t i = 0; i < blocks.size(); ++i) sums.push_back({*blocks[i], to + round * blocks.size() + i});
  const auto launches = [] { return emulated::coverage()["gpipe_emulated_launch"]; };
  const int64_t before = launches();
  backend->sum_of_squares({sums.data(), blocks.size()});
  CHECK(launches() - before <= 4);
  for (size_t i = blocks.size(); i < sums.size(); ++i) backend->sum_of_squares({&sums[i], 1});
  std::vector<double> found(sums.size());
  read_bytes(*backend, out.view().data, out.view().bytes(), found.data());
  for (size_t i = 0; i < blocks.size(); ++i) {
    CHECK(found[i] == doctest::Approx(plain[i]).epsilon(1e-12));
    CHECK(found[i] == found[blocks.size() + i]);
  }
}

TEST_CASE("updates are the rule's own bits") {
  const Machine machine;
  const auto backend = gpu(), host = cpu();
  const std::vector<device::Update> rules = {
      device::SgdUpdate{.common = {.learning_rate = 0.1F, .gradient_scale = 0.5F, .l2 = 0.01F}},
      device::MomentumUpdate{.common = {.learning_rate = 0.1F, .averaging = 0.3F}, .momentum = 0.9F, .nesterov = true},
      device::AdamUpdate{.common = {.learning_rate = 0.01F, .decoupled = 0.1F}, .correction1 = 0.1F, .root_correction2 = 0.03F},
      device::RmspropUpdate{.common = {.learning_rate = 0.01F}, .momentum = 0.9F}};
  for (const device::Update& rule : rules) {
    std::vector<std::vector<float>> results[2];
    for (device::Backend* device : {backend.get(), host.get()}) {
      const int64_t count = 901;
      std::vector<float> positive = noise(4, count);
      for (float& x : positive) x = std::abs(x);
      const DeviceBlock weight(*device, {count}, noise(1, count)), gradient(*device, {count}, noise(2, count));
      const DeviceBlock first(*device, {count}, positive), second(*device, {count}, positive), third(*device, {count}, positive);
      std::vector<TensorView> slots = {first, second, third};
      std::visit([&](const auto& one) { slots.resize(static_cast<size_t>(one.slots + (one.common.averaging > 0 ? 1 : 0))); },
                 rule);
      const device::ParameterUpdate what{rule, weight, gradient, slots};
      device->update({&what, 1});
      auto& out = results[device == host.get() ? 1 : 0];
      for (const DeviceBlock* block : {&weight, &first, &second, &third}) out.push_back(block->values());
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("many parameters are updated together, of any size and rule, each as if it were alone") {
  const Machine machine;
  const auto backend = gpu();
  std::vector<std::vector<float>> results[2];
  for (const bool together : {false, true}) {
    std::vector<std::unique_ptr<DeviceBlock>> blocks;
    const auto block = [&](int64_t count) {
      blocks.push_back(std::make_unique<DeviceBlock>(*backend, tensor::Shape{count}, noise(blocks.size(), count)));
      return blocks.back()->view();
    };
    std::vector<device::ParameterUpdate> updates;
    std::deque<std::vector<TensorView>> slots;
    for (int i = 0; i < 75; ++i) {
      const int64_t count = i % 7 == 3 ? 4096 * (i % 3 + 1) + i % 2 : 1 + 13 * i;
      device::Update rule = device::MomentumUpdate{.common = {.learning_rate = 0.01F * static_cast<float>(i)}, .momentum = 0.9F};
      if (i == 40 || i == 41) rule = device::SgdUpdate{.common = {.learning_rate = 0.1F}};
      slots.emplace_back();
      const TensorView weight = block(count), gradient = block(count);
      if (i != 40 && i != 41) slots.back().push_back(block(count));
      updates.push_back({rule, weight, gradient, slots.back()});
    }
    if (together)
      backend->update(updates);
    else
      for (const device::ParameterUpdate& one : updates) backend->update({&one, 1});
    for (const auto& one : blocks) results[together ? 1 : 0].push_back(one->values());
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("an id outside the vocabulary and a class that is not there are named when the host waits, once") {
  const Machine machine;
  const auto backend = gpu();
  const auto op = backend->embedding({.rows = 5, .columns = 2});
  const DeviceBlock block(*backend, {2, 3}), table(*backend, {5, 2}, noise(1, 10)), y(*backend, {2, 3, 2});
  for (const int32_t bad : {5, -1, 2147483647}) {
    op->forward(ids_in(*backend, block, {0, 1, 2, 3, bad, 4}), table, y);
    check_contains(message_of([&] { backend->synchronize(); }, base::ExitCode::data),
                   {"token id " + std::to_string(bad), "position 1 of sample 1", "0..4"});
    backend->synchronize();
    op->backward_weight(ids_in(*backend, block, {0, 1, 2, 3, bad, 4}), y, table, false);
    backend->synchronize();
  }
  const auto loss = backend->cross_entropy({.classes = 3}, {6});
  const auto workspace = backend->allocate(loss->workspace_bytes());
  const DeviceBlock logits(*backend, {6, 3}, noise(2, 18)), result(*backend, {6, 2});
  const TensorView targets = ids_in(*backend, block, {0, 1, -100, 3, 2, -1});
  loss->forward(logits, {targets.data, {6}, tensor::DType::i32}, result, workspace->data());
  check_contains(message_of([&] { backend->synchronize(); }, base::ExitCode::data), {"class 3", "place 3", "0..2"});
}

TEST_CASE("of several bad ids the first of the first micro-batch is named, wherever the others are") {
  const Machine machine;
  const auto backend = gpu();
  const auto op = backend->embedding({.rows = 5, .columns = 1});
  for (const int64_t length : {4000, 200000}) {
    const DeviceBlock one(*backend, {2, length}), two(*backend, {2, length}), table(*backend, {5, 1}, noise(1, 5));
    const DeviceBlock y(*backend, {2, length, 1});
    std::vector<int32_t> ids(static_cast<size_t>(2 * length), 4);
    op->forward(ids_in(*backend, one, ids), table, y);
    backend->synchronize();
    const auto at = [&](int64_t place) -> int32_t& { return ids[static_cast<size_t>(place)]; };
    at(2 * length - 1) = 9, at(length + 1500) = 7, at(length + 1501) = 6;
    const tensor::TensorView early = ids_in(*backend, one, ids);
    at(3) = 8;
    const tensor::TensorView late = ids_in(*backend, two, ids);
    op->forward(early, table, y);
    op->forward(late, table, y);
    check_contains(message_of([&] { backend->synchronize(); }, base::ExitCode::data),
                   {"token id 7 ", "position 1500 of sample 1"});
    backend->synchronize();
    op->forward(late, table, y);
    check_contains(message_of([&] { backend->synchronize(); }, base::ExitCode::data), {"token id 8 ", "position 3 of sample 0"});
  }
}

TEST_CASE("NaN and ties: max pooling, softmax and cross-entropy do what they do on a CPU") {
  const Machine machine;
  std::vector<std::vector<float>> results[2];
  for (const bool host : {false, true}) {
    const auto backend = host ? cpu() : gpu();
    auto& out = results[host ? 1 : 0];
    const auto pool = backend->pool({device::PoolSpec::Kind::max, 2, 2, 3, 1, 1, {2, 2}, {2, 2}, 0, 0, 0, 0}, {1});
    const DeviceBlock x(*backend, {1, 2, 2, 3}, {1, 5, 1, 7, 5, not_a_number, 7, 0, 9, 0, 0, 0}), y(*backend, {1, 1, 1, 3});
    const DeviceBlock dy(*backend, {1, 1, 1, 3}, {1, 2, 3}), dx(*backend, {1, 2, 2, 3});
    const auto saved = backend->allocate(pool->saved_bytes(1));
    pool->forward(x, y, saved->data(), nullptr);
    CHECK(std::isnan(y[2]));
    pool->backward(dy, saved->data(), dx, nullptr);
    out.push_back({y[0], y[1]});
    out.push_back(dx.values());
    const DeviceBlock logits(*backend, {3, 3}, {1e4F, -1e4F, 0, 0, 0, 1e38F, not_a_number, 1, 2}), result(*backend, {3, 2});
    const DeviceBlock classes(*backend, {3}), spread(*backend, {3, 3});
    const TensorView targets = ids_in(*backend, classes, {1, 2, 0});
    const auto loss = backend->cross_entropy({.classes = 3}, {3});
    const auto workspace = backend->allocate(std::max<size_t>(loss->workspace_bytes(), 64));
    loss->forward(logits, targets, result, workspace->data());
    CHECK(std::isnan(result[4]));
    out.push_back({result[0], result[1], result[2], result[3], result[5]});
    backend->softmax()->forward(logits, spread);
    for (int64_t i = 6; i < 9; ++i) CHECK(std::isnan(spread[i]));
    for (const auto kind : {device::ActivationSpec::Kind::relu, device::ActivationSpec::Kind::gelu}) {
      backend->activation({kind})->forward(logits, spread);
      CHECK(std::isnan(spread[6]));
    }
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("a failed call names itself, its status and the device, and leaves nothing behind") {
  const Machine machine({.devices = 2});
  const std::vector<std::pair<std::string, int>> calls = {{"cudnnConvolutionForward", CUDNN_STATUS_EXECUTION_FAILED},
                                                          {"cudnnCreateTensorDescriptor", CUDNN_STATUS_ALLOC_FAILED},
                                                          {"cudaStreamSynchronize", cudaErrorLaunchFailure},
                                                          {"bias", cudaErrorInvalidValue},
                                                          {"cudaMalloc", cudaErrorMemoryAllocation}};
  for (const auto& [call, status] : calls) {
    CAPTURE(call);
    const auto backend = gpu(1);
    const DeviceBlock x(*backend, {2, 5, 5, 3}, noise(1, 150)), weight(*backend, {4, 3, 3, 3}, noise(2, 108));
    const DeviceBlock bias(*backend, {4}, noise(3, 4)), y(*backend, {2, 5, 5, 4});
    emulated::fail_at(call, 1, status);
    const bool memory = call == "cudaMalloc" || call == "cudnnCreateTensorDescriptor";
    const std::string message = message_of(
        [&] {
          const auto op = backend->convolution(small_convolution(), {2});
          const auto packed = backend->allocate(op->packed_weight_bytes()), workspace = backend->allocate(op->workspace_bytes());
          op->pack_weight(weight, packed->data(), workspace->data());
          op->forward(x, {weight, packed->data()}, bias, y, workspace->data());
          backend->synchronize();
        },
        memory ? base::ExitCode::memory : base::ExitCode::device);
    check_contains(message, {"cuda:1", call == "cudaMalloc" ? "bytes were wanted" : call});
    emulated::clear_failures();
  }
}

TEST_CASE("all work of a step is queued: the host waits nowhere in it") {
  const Machine machine({.delay_us = 300});
  const auto backend = gpu();
  const auto op = backend->convolution(small_convolution(), {2});
  const auto linear = backend->linear({.in_features = 100, .out_features = 7}, {2});
  const DeviceBlock x(*backend, {2, 5, 5, 3}, noise(1, 150)), weight(*backend, {4, 3, 3, 3}, noise(2, 108));
  const DeviceBlock bias(*backend, {4}, noise(3, 4)), y(*backend, {2, 5, 5, 4}), dx(*backend, {2, 5, 5, 3}), dbias(*backend, {4});
  const DeviceBlock matrix(*backend, {7, 100}, noise(4, 700)), offset(*backend, {7}), z(*backend, {2, 7});
  const auto packed = backend->allocate(op->packed_weight_bytes()), sums = backend->allocate(op->packed_gradient_bytes());
  const auto workspace = backend->allocate(std::max(op->workspace_bytes(), linear->workspace_bytes()));
  op->pack_weight(weight, packed->data(), workspace->data());
  linear->forward({y.view().data, {2, 100}}, {matrix}, offset, z, workspace->data());  // what is made on first use is made now
  const int64_t before = emulated::host_waits();
  for (int micro = 0; micro < 3; ++micro) {
    op->forward(x, {weight, packed->data()}, bias, y, workspace->data());
    linear->forward({y.view().data, {2, 100}}, {matrix}, offset, z, workspace->data());
    op->backward_input(y, {weight, packed->data()}, dx, workspace->data());
    op->backward_weight(x, y, {weight, sums->data()}, dbias, micro > 0, workspace->data());
  }
  CHECK(emulated::host_waits() == before);
  backend->synchronize();
  CHECK(emulated::host_waits() > before);
}
