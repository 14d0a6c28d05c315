// Tables 2 and 3: normalised throughput of K stages and M micro-batches, simulated with costs measured here, and two stages for
// real.
#include "core/base/median.h"
#include "core/base/text.h"
#include "core/pipeline/predict.h"
#include "core/pipeline/profile.h"
#include "tests/bench/gpipe_tables/tables.h"
#include "tests/bench/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <utility>

namespace gpipe::bench {
namespace {

using base::Table;
using pipeline::Rematerialize;
constexpr auto k_right = Table::Align::right;
constexpr std::array<int64_t, 3> k_partitions{2, 4, 8}, k_micro_batches{1, 4, 32};

struct Subject {
  std::string name;
  ModelSpec spec;
  int64_t batch = 1;
  std::array<std::array<double, 3>, 3> paper{};  // Table 2, by M and K; the unit is K = 2, M = 1
  std::array<double, 3> paper_slow{};            // Table 3, M = 32, by K; the unit is K = 2
};

std::vector<Subject> subjects(bool quick) {
  const int64_t filters = quick ? 16 : 64, side = quick ? 32 : 64, layers = quick ? 12 : 48;
  return {
      {fmt::format("AmoebaNet-D (18, {}) on {}x{}", filters, side, side),
       {"amoebanet-d", {{"L", 18}, {"D", filters}, {"classes", 10}}, {side, side, 3}, 10},
       64,
       {{{1, 1.13, 1.38}, {1.07, 1.26, 1.72}, {1.21, 1.84, 3.48}}},
       {1, 1.7, 2.7}},
      {fmt::format("Transformer-{} of width 64", layers),
       {"transformer-l",
        {{"L", layers}, {"model", 64}, {"ff", 256}, {"heads", 2}, {"vocabulary", 512}, {"sequence", 64}},
        {64},
        512},
       32,
       {{{1, 1.07, 1.3}, {1.7, 3.2, 4.8}, {1.8, 3.4, 6.3}}},
       {1, 1.8, 3.3}},
  };
}

struct Link {
  std::string name;
  pipeline::LinkModel model;
};
const std::array<Link, 2>& links() {
  static const std::array<Link, 2> all{Link{"100 Gbit/s, 5 us", {5e-6, 12.5e9, false}},
                                       Link{"1 Gbit/s, 50 us", {50e-6, 0.125e9, false}}};
  return all;
}

/// What each node takes of a processor in the last micro-batch of a step. Waiting for one is not counted, so other programs on
/// the machine disturb little. For one stage of one thread; each instruction has what its thread took since the one before.
class ProcessorTimes final : public pipeline::InstructionObserver {
 public:
  enum What { forward, input, weight, pack, update, k_whats };

  ProcessorTimes(size_t nodes, int micro) : micro_(micro) {
    for (auto& list : all_) list.resize(nodes);
    now_.assign(nodes, {});
  }
  void instruction(int /*stage*/, const pipeline::Task& task, const pipeline::Instruction& what,
                   std::span<const tensor::TensorView> /*outputs*/, double /*seconds*/) override {
    const bool weights = what.kind == pipeline::Instruction::Kind::backward_weight;
    const double taken = since_last();
    if (task.micro == micro_) add(what.node, task.work == pipeline::Work::forward ? forward : weights ? weight : input, taken);
  }
  void upkeep(int /*stage*/, int node, bool packs, double /*seconds*/) override {
    add(node, packs ? pack : update, since_last());
  }

  void end_step() {
    for (size_t node = 0; node < now_.size(); ++node)
      for (size_t what = 0; what < k_whats; ++what) all_[what][node].push_back(std::exchange(now_[node][what], 0));
  }
  /// Medians over the steps.
  void write(std::vector<pipeline::NodeProfile>& profile) const {
    for (size_t node = 0; node < profile.size(); ++node) {
      const auto of = [&](What what) { return base::median(all_[what][node]); };
      pipeline::NodeProfile& cost = profile[node];
      cost.forward = of(forward);
      cost.backward_input = of(input);
      cost.backward_weight = of(weight);
      cost.pack = of(pack);
      cost.update = of(update);
    }
  }

 private:
  void add(int node, What what, double seconds) { now_[static_cast<size_t>(node)][what] += seconds; }
  double since_last() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    const double now = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    return now - std::exchange(last_, now);
  }

  int micro_;
  double last_ = 0;
  std::vector<std::array<double, k_whats>> now_;
  std::array<std::vector<std::vector<double>>, k_whats> all_;
};

/// Costs of the nodes of one micro-batch when a mini-batch is cut into M.
std::vector<pipeline::NodeProfile> measured(const Subject& subject, const graph::Network& network, int64_t micro_batches,
                                            bool quick) {
  const pipeline::ProfileBatch size = pipeline::profile_batch(pipeline::MicroBatches(subject.batch, micro_batches));
  const auto plan =
      pipeline::make_plan(network, {pipeline_of(1, size.micro_batches, Rematerialize::none), size.samples, k_slots, {}, nullptr});
  Trial trial(subject.spec, *plan);
  auto profile = pipeline::measure_nodes(trial.engine(), trial.batch(), {1, 0, 0.1});  // warms up, and knows the bytes
  ProcessorTimes times(network.nodes.size(), static_cast<int>(size.micro_batches) - 1);
  trial.engine().set_observer(&times);
  const int steps = quick ? 1 : size.samples > 8 ? 5 : 15;
  for (int i = 0; i < steps; ++i) {
    trial.step();
    times.end_step();
  }
  trial.engine().set_observer(nullptr);
  times.write(profile);
  return profile;
}

/// What a stage sends for one micro-batch: to later stages, or gradients to earlier ones.
std::vector<double> bytes_of(const pipeline::Plan& plan, bool gradients) {
  std::vector<double> bytes(plan.stages.size(), 0);
  for (const pipeline::EdgePlan& edge : plan.edges)
    if (edge.gradient == gradients) bytes[static_cast<size_t>(edge.from)] += static_cast<double>(edge.slot_bytes);
  return bytes;
}

/// Seconds of one mini-batch, update included.
double simulated(const pipeline::Plan& plan, const pipeline::LinkModel& link) {
  const pipeline::Prediction prediction = pipeline::predict(plan);
  pipeline::SimulationInput input;
  input.costs = prediction.stages;
  input.forward_bytes = bytes_of(plan, false);
  input.backward_bytes = bytes_of(plan, true);
  input.link = link;
  input.finish = prediction.update;
  return pipeline::simulate(plan.schedule, input).makespan;
}

using Costs = std::array<std::vector<pipeline::NodeProfile>, 3>;  // by M
using Grid = std::array<std::array<double, 3>, 3>;                // seconds, by M and K

/// Steps of every K and M over each link; planned with recompute and cut by the measured costs.
std::array<Grid, 2> simulate_all(const Subject& subject, const graph::Network& network, const Costs& costs) {
  std::array<Grid, 2> grids{};
  for (size_t m = 0; m < k_micro_batches.size(); ++m) {
    for (size_t k = 0; k < k_partitions.size(); ++k) {
      const auto plan = pipeline::make_plan(network, {pipeline_of(k_partitions[k], k_micro_batches[m], Rematerialize::full),
                                                      subject.batch, k_slots, costs[m], nullptr});
      for (size_t link = 0; link < links().size(); ++link) grids[link][m][k] = simulated(*plan, links()[link].model);
    }
  }
  return grids;
}

std::vector<Table::Column> columns(const std::string& first) {
  std::vector<Table::Column> all{{first}};
  for (const int64_t k : k_partitions) {
    all.push_back({fmt::format("K={}", k), k_right});
    all.push_back({"paper", k_right});
  }
  return all;
}

void print_grids(const Subject& subject, const std::array<Grid, 2>& grids) {
  fmt::print("{}, {} samples a mini-batch; K=2, M=1 takes {:.0f} ms\n\n", subject.name, subject.batch, 1e3 * grids[0][0][0]);
  Table fast(columns(fmt::format("Table 2: {}", links()[0].name)));
  Table slow(columns(fmt::format("Table 3: {}", links()[1].name)));
  for (size_t m = 0; m < k_micro_batches.size(); ++m) {
    std::vector<std::string> row{fmt::format("M={}", k_micro_batches[m])}, slow_row = row;
    const bool last = m + 1 == k_micro_batches.size();
    for (size_t k = 0; k < k_partitions.size(); ++k) {
      row.push_back(fmt::format("{:.2f}", grids[0][0][0] / grids[0][m][k]));
      row.push_back(fmt::format("{:.2f}", subject.paper[m][k]));
      slow_row.push_back(fmt::format("{:.2f}", grids[1][2][0] / grids[1][m][k]));
      slow_row.push_back(last ? fmt::format("{:.1f}", subject.paper_slow[k]) : "");
    }
    fast.add_row(row);
    slow.add_row(slow_row);
  }
  fmt::print("{}\n{}\n", fast.text(), slow.text());
}

/// The best step of two stages on this machine, the Ms taken in turns so that a slow moment hits all, and what the simulator
/// says.
void print_real(const Subject& subject, const graph::Network& network, const Costs& costs, const Grid& simulated, bool quick) {
  std::vector<std::unique_ptr<pipeline::Plan>> plans;
  std::vector<std::unique_ptr<Trial>> trials;
  for (size_t m = 0; m < k_micro_batches.size(); ++m) {
    plans.push_back(pipeline::make_plan(
        network, {pipeline_of(2, k_micro_batches[m], Rematerialize::full), subject.batch, k_slots, costs[m], nullptr}));
    trials.push_back(std::make_unique<Trial>(subject.spec, *plans.back()));
    trials.back()->step();
  }
  std::array<double, 3> seconds{};
  for (int turn = 0; turn < (quick ? 1 : 7); ++turn)
    for (size_t m = 0; m < trials.size(); ++m) {
      const double taken = trials[m]->step().seconds;
      seconds[m] = turn == 0 ? taken : std::min(seconds[m], taken);
    }
  Table table(
      {{"K=2 here, for real"}, {"samples/s", k_right}, {"over M=1", k_right}, {"simulated", k_right}, {"paper", k_right}});
  for (size_t m = 0; m < trials.size(); ++m)
    table.add_row({fmt::format("M={}", k_micro_batches[m]),
                   fmt::format("{:.1f}", static_cast<double>(subject.batch) / seconds[m]),
                   fmt::format("{:.2f}", seconds[0] / seconds[m]), fmt::format("{:.2f}", simulated[0][0] / simulated[m][0]),
                   fmt::format("{:.2f}", subject.paper[m][0])});
  double load = 0;
  const bool known = getloadavg(&load, 1) == 1;
  fmt::print("{}{}\n", table.text(),
             known ? fmt::format("(the machine has {} cores and a load of {:.1f}: more than 2 is other work)\n",
                                 std::thread::hardware_concurrency(), load)
                   : "");
}

}  // namespace

void print_speeds(bool quick) {
  fmt::print(
      "Tables 2 and 3: samples a second over those of K=2, M=1 (Table 2) and K=2, M=32 (Table 3), by the simulator, with\n"
      "processor times measured here, recompute as in the paper, and links between neighbours. Paper: TPUs; GPUs without "
      "NVLink.\n\n");
  for (const Subject& subject : subjects(quick)) {
    const graph::Network network = network_of(subject.spec);
    Costs costs;
    for (size_t m = 0; m < costs.size(); ++m) costs[m] = measured(subject, network, k_micro_batches[m], quick);
    const auto grids = simulate_all(subject, network, costs);
    print_grids(subject, grids);
    std::fflush(stdout);
    print_real(subject, network, costs, grids[0], quick);
    std::fflush(stdout);
  }
}

}  // namespace gpipe::bench
