// The promise for the nodes that move, resample, scale and drop whole parts: the same bits for every cut and schedule.
#include "tests/pipeline/exactness.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace gpipe;

namespace {

using pipeline::Rematerialize;
using test::options;

const test::SmallRun k_run{R"(
- conv2d: {out_channels: 6, kernel_size: 3, padding: same, init: orthogonal}
- dropout2d: {p: 0.3}
- max_pool2d: {kernel_size: 2}
- conv_transpose2d: {out_channels: 5, kernel_size: 3, stride: 2, padding: 1, init: {xavier_uniform: {divide: 2}}}
- scale: {learned: channels, init: 0.5}
- residual:
    body:
    - pad: {padding: [0, 1, 0, 1]}
    - crop: {cropping: [1, 0, 1, 0]}
    - scale: {factor: 0.7}
    - drop_path: {keep: 0.6, ramp: true}
- upsample: {scale_factor: 1.5, mode: bilinear}
- transpose: {swap: [0, 1]}
- slice: {axis: 0, begin: 1, end: -1}
- reshape: {shape: [-1, 10]}
- softmax
- flatten
- linear: {out_features: 4}
- clip: {magnitude: 2}
)",
                           {8, 6, 3}};

}  // namespace

TEST_CASE("nodes that move, resample, scale and drop give the same bits for every K, schedule and recompute policy") {
  const int nodes = test::network_of(k_run.network, k_run.input, k_run.classes).loss_node();
  for (const int micro_batches : {1, 3, 4}) {
    const test::RunBits unpiped = test::run_steps(k_run, options(1, micro_batches, Rematerialize::none), 5);
    REQUIRE(std::isfinite(unpiped.losses.back()));
    CHECK(unpiped.losses.back() != unpiped.losses.front());
    for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
      for (const int partitions : {1, 2, 4, nodes})
        for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none}) {
          CAPTURE(fmt::format("{} K={} M={} policy={}", schedule, partitions, micro_batches, static_cast<int>(policy)));
          CHECK(test::run_steps(k_run, options(partitions, micro_batches, policy, schedule), 5) == unpiped);
        }
  }
}

TEST_CASE("a drop_path that ramps up drops nothing at the start of a run and its share at the end") {
  const std::string network =
      "[flatten, {scale: {learned: channels}}, {drop_path: {keep: 0.25, ramp: RAMP}}, {linear: {out_features: 4}}]";
  const auto run = [&](const std::string& ramp) {
    test::SmallRun small{network, {2, 2, 2}};
    small.network.replace(small.network.find("RAMP"), 4, ramp);
    return small;
  };
  const auto loss = [&](const std::string& ramp, double progress) {
    const test::SmallRun small = run(ramp);
    const graph::Network made = test::network_of(small.network, small.input, small.classes);
    base::Problems problems;
    const auto optimizer = train::make_optimizer(base::Tree::scalar("sgd"), "optimizer", problems);
    const auto plan = pipeline::make_plan(made, {options(2, 2, Rematerialize::full), small.batch_size, 0, {}});
    pipeline::Engine engine(*plan);
    test::initialise(engine, *optimizer, small.seed);
    test::MadeBatch batch(small, 0);
    pipeline::MiniBatch view = batch.view(small.seed);
    view.progress = progress;
    std::vector<device::Update> rules(engine.parameter_count(), device::SgdUpdate{});
    return engine.train(view, rules, 0).loss;
  };
  CHECK(loss("true", 1) == loss("false", 0));
  CHECK(loss("true", 0) != loss("true", 1));
  CHECK(loss("true", 0.5) != loss("true", 1));
  CHECK(loss("false", 0) == loss("false", 0.5));
}
