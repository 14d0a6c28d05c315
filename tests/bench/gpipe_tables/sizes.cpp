// Table 1: what is counted at the paper's sizes, and the largest models that fit into a small device here.
#include "core/base/text.h"
#include "core/pipeline/search.h"
#include "tests/bench/gpipe_tables/tables.h"
#include "tests/bench/model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

namespace gpipe::bench {
namespace {

using base::Table;
using pipeline::Rematerialize;
constexpr auto k_right = Table::Align::right;
constexpr int64_t k_limit = 64 * k_mebi;

/// A column of the paper's table. Parameters in millions and gigabytes as it prints them.
struct PaperColumn {
  std::string name;
  int64_t layers = 0, width = 0;  // width: D of AmoebaNet, or 0
  int64_t parameters = 0;         // exact, of configs/networks
  double millions = 0, parameter_gigabytes = 0, activation_gigabytes = 0;
};

const std::vector<PaperColumn>& amoebanet_columns() {
  static const std::vector<PaperColumn> columns{
      {"Naive-1", 18, 208, 81505540, 82, 1.05, 6.26},
      {"Pipeline-1", 18, 416, 319024120, 318, 3.8, 3.46},
      {"Pipeline-2", 18, 544, 0, 542, 6.45, 8.11},
      {"Pipeline-4", 36, 544, 1055832376, 1050, 12.53, 15.21},
      {"Pipeline-8", 72, 512, 1844858344, 1800, 24.62, 26.24},
  };
  return columns;
}
const std::vector<PaperColumn>& transformer_columns() {
  static const std::vector<PaperColumn> columns{
      {"Naive-1", 3, 0, 282178816, 282.2, 11.7, 3.15},
      {"Pipeline-1", 13, 0, 785761536, 785.8, 8.8, 6.4},
      {"Pipeline-8", 103, 0, 5318006016, 5300, 59.5, 50.9},
      {"Pipeline-32", 415, 0, 0, 21000, 235.1, 199.9},
      {"Pipeline-128", 1663, 0, 83876910336, 83900, 937.9, 796.1},
  };
  return columns;
}

std::string size_words(int64_t layers, int64_t width) {
  return width > 0 ? fmt::format("({}, {})", layers, width) : fmt::format("L = {}", layers);
}

/// Counts one network's columns beside the paper's. False where they differ.
bool print_counts(const std::string& title, const std::vector<PaperColumn>& columns,
                  const std::function<ModelSpec(int64_t layers, int64_t width)>& spec) {
  Table table({{title}, {"size"}, {"parameters", k_right}, {"paper", k_right}, {"12 bytes each", k_right}, {"paper", k_right}});
  bool right = true;
  for (const PaperColumn& column : columns) {
    const int64_t parameters = parameters_of(spec(column.layers, column.width));
    right = right && (column.parameters == 0 || parameters == column.parameters) &&
            std::abs(static_cast<double>(parameters) / 1e6 / column.millions - 1) < 0.03;
    table.add_row({column.name, size_words(column.layers, column.width), base::format_count(parameters),
                   column.millions < 1000 ? fmt::format("{} M", column.millions) : fmt::format("{} B", column.millions / 1000),
                   fmt::format("{:.2f} GB", static_cast<double>(k_bytes * parameters) / 1e9),
                   fmt::format("{:.2f} GB", column.parameter_gigabytes)});
  }
  fmt::print("{}\n", table.text());
  return right;
}

/// A family of models of one size number, at one mini-batch.
struct Family {
  std::string name;
  int64_t batch = 1;
  int64_t micro_batches = 1;  // of the columns that recompute
  std::function<ModelSpec(int64_t partitions, int64_t size)> spec;
  std::function<std::string(int64_t partitions, int64_t size)> words;
  std::function<int64_t(int64_t partitions)> step;  // sizes are its multiples
  int64_t most = 1;                                 // and at most this
  std::map<int64_t, double> paper_growth;           // by partitions; 0: the naive column's own
};

/// The largest of a family that K devices of k_limit take.
struct Found {
  int64_t size = 0;
  ModelSpec spec;
  int64_t parameters = 0, micro_batches = 1;
  size_t weights = 0, packed = 0, activations = 0;  // bytes of all devices: 12 a parameter (and averages); copies; the rest
  int64_t fullest = 0;                              // bytes of the fullest device
  double loss = 0;                                  // of the step that it trained
  bool in_limit = true;
};

size_t weight_bytes(const pipeline::StageMemory& m) { return m.parameters + m.gradients + m.optimizer + m.buffers; }

/// Plans under the limit. Together, devices hold at least what one without a limit would, so sizes beyond that need no plan.
class Search {
 public:
  Search(const Family& family, int64_t partitions, int64_t micro_batches, Rematerialize policy)
      : family_(family), partitions_(partitions), micro_batches_(micro_batches), policy_(policy) {}

  Found largest() {
    const int64_t step = family_.step(partitions_);
    int64_t low = 0, high = family_.most / step + 1;  // in steps: `low` may fit, `high` cannot
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (may_fit(middle * step) ? low : high) = middle;
    }
    for (int64_t steps = low; steps > 0; --steps)
      if (auto found = fits(steps * step)) return *found;
    throw base::ConfigError("{}: nothing fits into {} devices of {}", family_.name, partitions_, base::format_bytes(k_limit));
  }

 private:
  std::unique_ptr<pipeline::Plan> plan(const graph::Network& network, int64_t partitions, int64_t limit) const {
    pipeline::PipelineOptions options = pipeline_of(partitions, micro_batches_, policy_);
    options.memory_limit = base::Tree::scalar(fmt::format("{}", limit));
    return pipeline::make_plan(network, {options, family_.batch, k_slots, {}, nullptr});
  }
  bool may_fit(int64_t size) const {
    const ModelSpec spec = family_.spec(partitions_, size);
    if (parameters_of(spec) * k_bytes > partitions_ * k_limit) return false;
    const graph::Network network = network_of(spec);
    return static_cast<int64_t>(plan(network, 1, 0)->arena_bytes()) <= partitions_ * k_limit;
  }
  /// If the plan fits, what it holds, once it has trained a step.
  std::optional<Found> fits(int64_t size) const {
    Found found;
    found.size = size;
    found.spec = family_.spec(partitions_, size);
    found.micro_batches = micro_batches_;
    const graph::Network network = network_of(found.spec);
    const auto made = plan(network, partitions_, k_limit);
    const pipeline::MemoryVerdict verdict = pipeline::memory_verdict(*made);
    if (!verdict.fits()) return std::nullopt;
    found.parameters = network.parameter_count();
    Trial trial(found.spec, *made);
    found.loss = trial.step().loss;
    for (size_t stage = 0; stage < made->stages.size(); ++stage) {
      const pipeline::StageMemory& memory = made->stages[stage].memory;
      found.weights += weight_bytes(memory);
      found.packed += memory.packed;
      found.activations += memory.total() - weight_bytes(memory) - memory.packed;
      const auto arena = static_cast<int64_t>(trial.engine().arena_bytes(static_cast<int>(stage)));
      found.fullest = std::max(found.fullest, arena);
      found.in_limit = found.in_limit && arena <= k_limit;
    }
    return found;
  }

  const Family& family_;
  int64_t partitions_, micro_batches_;
  Rematerialize policy_;
};

std::string mebi(size_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(k_mebi)); }

bool print_largest(const Family& family, const std::vector<int64_t>& partitions) {
  Table table({{family.name},
               {"size"},
               {"M", k_right},
               {"parameters", k_right},
               {"growth", k_right},
               {"paper", k_right},
               {"weights", k_right},
               {"copies", k_right},
               {"activations", k_right},
               {"fullest device", k_right},
               {"loss", k_right}});
  bool right = true;
  double naive = 0;
  for (const int64_t count : partitions) {
    const int64_t devices = std::max<int64_t>(count, 1);
    const Found found =
        Search(family, devices, count == 0 ? 1 : family.micro_batches, count == 0 ? Rematerialize::none : Rematerialize::full)
            .largest();
    right = right && found.in_limit;
    if (count == 0) naive = static_cast<double>(found.parameters);
    const auto paper = family.paper_growth.find(count);
    table.add_row({count == 0 ? "Naive-1" : fmt::format("Pipeline-{}", count), family.words(devices, found.size),
                   std::to_string(found.micro_batches), base::format_count(found.parameters),
                   fmt::format("{:.1f}x", static_cast<double>(found.parameters) / naive),
                   paper == family.paper_growth.end() ? "" : fmt::format("{:.1f}x", paper->second), mebi(found.weights),
                   mebi(found.packed), mebi(found.activations), mebi(static_cast<size_t>(found.fullest)) + " MiB",
                   fmt::format("{:.2f}", found.loss)});
    std::fflush(stdout);
  }
  fmt::print("{}\n", table.text());
  return right;
}

ModelSpec full_amoebanet(int64_t cells, int64_t filters) {
  return {"amoebanet-d", {{"L", cells}, {"D", filters}}, {224, 224, 3}, 1000};
}
ModelSpec full_transformer(int64_t layers, int64_t) { return {"transformer-l", {{"L", layers}}, {1024}, 32000}; }

/// Images of 32x32, 120 in a mini-batch; micro-batches of 15, since with fewer values to normalise by (one a sample in the last
/// cells) gradients of 72 cells that are not yet trained leave the range of floats. Cells as in the paper's column, filters grow
/// (by eights: a quarter of c is whole).
Family small_amoebanet() {
  const auto cells = [](int64_t partitions) -> int64_t { return partitions <= 2 ? 18 : partitions <= 4 ? 36 : 72; };
  return {.name = "AmoebaNet-D",
          .batch = 120,
          .micro_batches = 8,
          .spec = [cells](int64_t k, int64_t filters) -> ModelSpec {
            return {"amoebanet-d", {{"L", cells(k)}, {"D", filters}, {"classes", 10}}, {32, 32, 3}, 10};
          },
          .words = [cells](int64_t k, int64_t filters) { return size_words(cells(k), filters); },
          .step = [](int64_t) { return int64_t{8}; },
          .most = 128,
          .paper_growth = {{0, 1}, {1, 318.0 / 82}, {2, 542.0 / 82}, {4, 1050.0 / 82}, {8, 1800.0 / 82}}};
}

/// 32 sequences of 80 tokens; layers grow, the same number on each device.
Family small_transformer() {
  return {.name = "Transformer-L",
          .batch = 32,
          .micro_batches = 32,
          .spec = [](int64_t, int64_t layers) -> ModelSpec {
            return {"transformer-l",
                    {{"L", layers}, {"model", 96}, {"ff", 384}, {"heads", 6}, {"vocabulary", 768}, {"sequence", 80}},
                    {80},
                    768};
          },
          .words = [](int64_t, int64_t layers) { return size_words(layers, 0); },
          .step = [](int64_t k) { return k; },
          .most = 400,
          .paper_growth = {{0, 1}, {1, 785.8 / 282.2}, {8, 5318.0 / 282.2}}};
}

}  // namespace

bool print_sizes(bool quick) {
  fmt::print(
      "Table 1, at the paper's sizes; its parameter memory of Transformer Naive-1 is 41 bytes a parameter, of all others "
      "11 to 14\n\n");
  bool right = print_counts("AmoebaNet-D", amoebanet_columns(), full_amoebanet);
  right = print_counts("Transformer-L", transformer_columns(), full_transformer) && right;
  fmt::print(
      "Table 1, scaled down: the largest that trains a step on devices of 64 MiB (weights, gradients, one slot of SGD with\n"
      "momentum: 12 bytes a parameter; running averages; copies of weights and gradients as the kernels want them; "
      "activations).\n"
      "The mini-batch itself lies outside. Naive keeps all activations, M = 1; the others recompute. MiB of all devices.\n\n");
  std::fflush(stdout);
  const std::vector<int64_t> partitions = quick ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1, 2, 4, 8};
  right = print_largest(small_amoebanet(), partitions) && right;
  right = print_largest(small_transformer(), partitions) && right;
  if (!right) fmt::print("WRONG: a count differs from the paper's, or an arena is larger than its limit\n");
  return right;
}

}  // namespace gpipe::bench
