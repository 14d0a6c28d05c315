// What the pipeline costs and gains, as JSON lines: overhead over the primitives alone, scaling from one stage to two,
// memory planned against memory used. pipeline_bench [overhead|scaling|memory]...; run it on an idle machine.
#include "app/yaml_tree.h"
#include "core/base/rng.h"
#include "core/graph/builder.h"
#include "core/pipeline/engine.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"
#include "tests/bench/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace gpipe;

namespace {

/// A network on made-up data, with momentum SGD: one step after the other.
class Bench {
 public:
  Bench(const std::string& layers, const tensor::Shape& input, int64_t batch, const pipeline::PipelineOptions& options)
      : network_(build(layers, input)),
        plan_(pipeline::make_plan(network_, {options, batch, 1, {}})),
        engine_(*plan_),
        input_(static_cast<size_t>(batch * input.elements())),
        target_(static_cast<size_t>(batch)),
        results_(static_cast<size_t>(2 * batch)) {
    const base::Philox random(1, base::Purpose::test);
    for (size_t i = 0; i < input_.size(); ++i) input_[i] = random.uniform(i) - 0.5F;
    for (size_t i = 0; i < target_.size(); ++i) target_[i] = static_cast<int32_t>(random.below(i, 10));
    rules_ = bench::started(engine_);
  }

  double step() {
    pipeline::MiniBatch batch;
    batch.input = reinterpret_cast<std::byte*>(input_.data());
    batch.target = reinterpret_cast<std::byte*>(target_.data());
    batch.results = results_.data();
    return engine_.train(batch, rules_, 0).seconds;
  }

  pipeline::Engine& engine() { return engine_; }
  const pipeline::Plan& plan() const { return *plan_; }

 private:
  static graph::Network build(const std::string& layers, const tensor::Shape& input) {
    base::Problems problems;
    auto network = graph::build_network(app::parse_yaml(layers, "bench"), "network", {}, {input, {}, tensor::DType::i32, 10},
                                        layers::layer_types(), layers::composite_types(), problems);
    problems.throw_if_any();
    return network;
  }

  graph::Network network_;
  std::unique_ptr<pipeline::Plan> plan_;
  pipeline::Engine engine_;
  std::vector<float> input_;
  std::vector<int32_t> target_;
  std::vector<float> results_;
  std::vector<device::Update> rules_;
};

/// Adds up what the instructions themselves take.
class Primitives final : public pipeline::InstructionObserver {
 public:
  void instruction(int, const pipeline::Task&, const pipeline::Instruction&, std::span<const tensor::TensorView>,
                   double seconds) override {
    sum += seconds;
  }
  double sum = 0;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

pipeline::PipelineOptions options(int64_t partitions, int64_t micro_batches, pipeline::Rematerialize policy) {
  pipeline::PipelineOptions o;
  o.partitions = partitions;
  o.micro_batches = micro_batches;
  o.rematerialize = policy;
  return o;
}

/// Six 3x3 convolutions of 64 to 256 channels on 32x32 images, each with batch norm and relu.
std::string wide_convolutions() {
  std::string text;
  int index = 0;
  for (const int width : {64, 64, 128, 128, 256, 256})
    text +=
        fmt::format("- conv2d: {{out_channels: {}, kernel_size: 3, padding: 1, stride: {}, bias: false}}\n- batch_norm\n- relu\n",
                    width, index++ % 2 == 0 && width > 64 ? 2 : 1);
  return text + "- global_avg_pool\n- linear: {out_features: 10}\n";
}

/// Equal layers, so that two stages have the same to do.
std::string equal_convolutions(int layers) {
  return fmt::format(
      "- repeat:\n    times: {}\n    body:\n    - conv2d: {{out_channels: 64, kernel_size: 3, padding: 1}}\n    - relu\n"
      "- global_avg_pool\n- linear: {{out_features: 10}}\n",
      layers);
}

void overhead() {
  for (const auto policy : {pipeline::Rematerialize::none, pipeline::Rematerialize::full}) {
    Bench bench(wide_convolutions(), {32, 32, 3}, 64, options(1, 4, policy));
    bench.step();
    std::vector<double> shares;
    for (int i = 0; i < 7; ++i) {
      Primitives primitives;
      bench.engine().set_observer(&primitives);
      const double wall = bench.step();
      shares.push_back(primitives.sum / wall);
    }
    fmt::print("{{\"bench\": \"overhead\", \"recompute\": {}, \"primitives_over_step\": {:.3f}}}\n",
               policy == pipeline::Rematerialize::full, median(shares));
  }
}

void scaling() {
  const auto network = equal_convolutions(8);
  const tensor::Shape input{16, 16, 64};
  for (const auto policy : {pipeline::Rematerialize::none, pipeline::Rematerialize::full}) {
    Bench one(network, input, 128, options(1, 16, policy));
    Bench two(network, input, 128, options(2, 16, policy));
    one.step();
    two.step();
    std::vector<double> ratios;  // in turns, so that a slow moment hits both
    for (int i = 0; i < 9; ++i) {
      const double before = one.step();
      const double piped = two.step();
      ratios.push_back((before + one.step()) / 2 / piped);
    }
    fmt::print(
        "{{\"bench\": \"scaling\", \"recompute\": {}, \"M\": 16, \"K2_over_K1\": {:.3f}, \"ideal\": {:.3f}, \"share_of_ideal\": "
        "{:.3f}}}\n",
        policy == pipeline::Rematerialize::full, median(ratios), 32.0 / 17.0, median(ratios) * 17.0 / 32.0);
  }
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

void memory() {
  {
    Bench warm(equal_convolutions(1), {16, 16, 64}, 8,
               options(1, 1, pipeline::Rematerialize::full));  // code pages, the library's caches
    warm.step();
  }
  for (const auto policy : {pipeline::Rematerialize::none, pipeline::Rematerialize::full}) {
    const int64_t before = resident_bytes();
    Bench bench(equal_convolutions(20), {32, 32, 64}, 64, options(1, 8, policy));
    for (int i = 0; i < 2; ++i) bench.step();
    const auto growth = resident_bytes() - before;
    const auto data = static_cast<int64_t>(64 * 32 * 32 * 64 * sizeof(float));  // this bench's own mini-batch
    fmt::print(
        "{{\"bench\": \"memory\", \"recompute\": {}, \"planned_bytes\": {}, \"arena_bytes\": {}, \"process_growth_bytes\": "
        "{}}}\n",
        policy == pipeline::Rematerialize::full, bench.plan().arena_bytes(), bench.engine().arena_bytes(0), growth - data);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const auto asked = [&](const char* name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  try {
    if (asked("memory")) memory();  // first: later ones leave free memory behind that a run would take
    if (asked("overhead")) overhead();
    if (asked("scaling")) scaling();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
