// Deferred batch norm: running averages move once a mini-batch, by the statistics of the whole of it, not per micro-batch
// and not again by a recompute.
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace gpipe;

TEST_CASE("running averages after a step are those of the whole mini-batch, for uneven micro-batches and with recompute") {
  const test::SmallRun run{"[batch_norm, {linear: {out_features: 4}}]", {3}, 4, 7};
  const auto network = test::network_of(run.network, run.input, run.classes);
  test::MadeBatch made(run, 0);
  for (size_t i = 0; i < made.input.size(); ++i) made.input[i] = 100.0F + made.input[i];  // a mean far from 0 shows a bad merge
  for (const int64_t micro_batches : {1, 2, 3, 7})
    for (const bool recompute : {true, false}) {
      pipeline::PipelineOptions options;
      options.micro_batches = micro_batches;
      options.rematerialize = recompute ? pipeline::Rematerialize::full : pipeline::Rematerialize::none;
      const auto plan = pipeline::make_plan(network, {options, run.batch_size, 0, {}});
      pipeline::Engine engine(*plan);
      base::Problems problems;
      test::initialise(engine, *train::make_optimizer(base::Tree::scalar("sgd"), "", problems), 1);
      engine.train(made.view(1), std::vector<device::Update>(engine.parameter_count()), 0);
      for (int channel = 0; channel < 3; ++channel) {
        double mean = 0;
        double squares = 0;
        for (int row = 0; row < 7; ++row) mean += static_cast<double>(made.input[static_cast<size_t>(3 * row + channel)]) / 7;
        for (int row = 0; row < 7; ++row)
          squares += std::pow(static_cast<double>(made.input[static_cast<size_t>(3 * row + channel)]) - mean, 2);
        CAPTURE(micro_batches);
        // PyTorch: momentum 0.1, the unbiased variance; the averages start at 0 and 1.
        const auto average = [&](const char* name) {
          for (const auto* tensor : engine.tensors())
            if (tensor->name == name) return static_cast<double>(tensor->value.f32()[channel]);
          return -1.0;
        };
        CHECK(average("batch_norm_1.running_mean") == doctest::Approx(0.1 * mean).epsilon(1e-5));
        CHECK(average("batch_norm_1.running_var") == doctest::Approx(0.9 + 0.1 * squares / 6).epsilon(1e-4));
      }
    }
}
