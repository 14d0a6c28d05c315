#include "app/changed_settings.h"

#include "app/yaml_tree.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

std::vector<std::string> changes(const std::string& before, const std::string& now) {
  return changed_settings(parse_yaml(before, "before"), parse_yaml(now, "now"));
}
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("settings that a run's weights depend on are named by path when they differ") {
  CHECK(changes("{train: {learning_rate: 0.1, seed: 1}}", "{train: {learning_rate: 0.05, seed: 1}}") ==
        Words{"train.learning_rate was 0.1 and is 0.05 now"});
  CHECK(changes("{network: [{linear: {out_features: 8}}, {dropout: {p: 0.1}}]}",
                "{network: [{linear: {out_features: 8}}, {dropout: {p: 0.2}}]}") ==
        Words{"network.1.dropout.p was 0.1 and is 0.2 now"});
  CHECK(
      changes("{train: {parts: null, init_from: null}}", "{train: {parts: [{match: \"head.*\", frozen: true}], init_from: null}}")
          .size() == 1);
  CHECK(changes("{train: {optimizer: {sgd: {momentum: 0.9}}}}", "{train: {optimizer: {adam: {}}}}").size() == 2);
  CHECK(changes("{train: {loss: mse}}", "{train: {loss: {cross_entropy: {label_smoothing: 0.1}}}}") ==
        Words{"train.loss was mse and is {cross_entropy: {label_smoothing: 0.1}} now"});
  CHECK(changes("{pipeline: {micro_batches: 4, device: cpu}}", "{pipeline: {micro_batches: 8, device: cuda}}") ==
        Words{"pipeline.device was cpu and is cuda now", "pipeline.micro_batches was 4 and is 8 now"});
  CHECK(changes("{data: {train: {parallel: {buckets: [[8, 8], [16, 16]]}}}}", "{data: {train: {parallel: {}}}}").size() == 1);
  CHECK(changes("{train: {clip_norm: 0}}", "{train: {clip_norm: 0, ema_decay: 0.999}}") ==
        Words{"train.ema_decay was not set and is 0.999 now"});
}

TEST_CASE("settings that no weight depends on are left out") {
  CHECK(changes("{pipeline: {partitions: 2, schedule: gpipe, rematerialize: full, memory_limit: 0}}",
                "{pipeline: {partitions: 4, schedule: 1f1b, rematerialize: none, memory_limit: 8GiB}}")
            .empty());
  CHECK(
      changes(
          "{data: {validation: null, prefetch: 2}, train: {validate_every: 0}, output: {folder: a}, checkpoint: {keep_last: 2}}",
          "{data: {validation: {csv: {}}, prefetch: 4}, train: {validate_every: 5}, output: {folder: b}, checkpoint: "
          "{keep_last: 3}}")
          .empty());
}

TEST_CASE("deterministic algorithms are a matter of GPUs") {
  CHECK(changes("{pipeline: {device: cpu}, train: {deterministic: true}}",
                "{pipeline: {device: cpu}, train: {deterministic: false}}")
            .empty());
  CHECK(changes("{pipeline: {device: cuda}, train: {deterministic: true}}",
                "{pipeline: {device: cuda}, train: {deterministic: false}}")
            .size() == 1);
}

TEST_CASE("a longer run is another one where the learning rate knows its end") {
  CHECK(changes("{train: {steps: 10, schedule: null}}", "{train: {steps: 20, schedule: null}}").empty());
  CHECK(changes("{train: {epochs: 10, schedule: cosine}}", "{train: {epochs: 20, schedule: cosine}}") ==
        Words{"train.epochs was 10 and is 20 now"});
}

}  // namespace gpipe::app
