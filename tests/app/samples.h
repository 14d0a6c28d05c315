// A good configuration, and a small catalog to read it with: tests of reading do not depend on which layers there are.
#pragma once

#include "app/catalog.h"
#include "app/run_config.h"
#include "app/yaml_tree.h"

#include <string>
#include <vector>

namespace gpipe::test {

inline const std::string good_config = R"(network:
  - conv2d: {out_channels: 8, kernel_size: 3}
    name: stem
  - relu
  - linear: {out_features: 10}
pipeline: {partitions: 2, micro_batches: 4}
data:
  train: {csv: {path: digits.csv}}
train:
  epochs: 2
  batch_size: 16
  optimizer: {sgd: {momentum: 0.5}}
)";

struct Momentum {
  double momentum = 0.9;
  bool nesterov = false;
};
struct PathOnly {
  std::string path;
};

inline app::Catalog small_catalog() {
  base::FieldSet<Momentum> sgd{"sgd"};
  sgd.add("momentum", &Momentum::momentum).range(0, 1, true);
  sgd.add("nesterov", &Momentum::nesterov);
  base::FieldSet<PathOnly> csv{"csv"};
  csv.add("path", &PathOnly::path).required();
  app::Catalog catalog;
  catalog.optimizers = {{"sgd", "plain descent", sgd.table()}, {"adam", "with moments", {"adam", {}, {}}}};
  catalog.datasets = {{"csv", "numbers", csv.table()}, {"synthetic", "made up", {"synthetic", {}, {}}}};
  catalog.rates = {{"constant", "the same", {"constant", {}, {}}}, {"cosine", "down", {"cosine", {}, {}}}};
  catalog.losses = {{"cross_entropy", "classes", {}}, {"mse", "values", {}}};
  catalog.schedules = {{"gpipe", "all forwards first", {}}, {"1f1b", "alternating", {}}};
  return catalog;
}

struct Reading {
  app::RunConfig config;
  base::Problems problems;
};

/// The good configuration with values laid over it, as --set would.
inline Reading read_with(const std::vector<std::string>& sets, const std::string& text = good_config) {
  base::Tree tree = app::parse_yaml(text, "dir/run.yaml");
  for (const std::string& set : sets) app::apply(tree, app::parse_set(set));
  Reading reading;
  reading.config = app::read_run_config(tree, "dir/run.yaml", small_catalog(), reading.problems);
  return reading;
}

}  // namespace gpipe::test
