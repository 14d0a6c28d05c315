// AmoebaNet-D and U-Net, whose values skip stages, cut at every place: the same bits as unpiped.
#include "tests/support/paths.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <set>
#include <sstream>

using namespace gpipe;

namespace {

/// A file of configs/networks with other parameters, and more layers behind its own.
std::string network_file(const std::string& name, const std::string& parameters, const std::string& more = "") {
  std::ifstream file(test::source_dir() / "configs/networks" / (name + ".yaml"));
  std::ostringstream text;
  for (std::string line; std::getline(file, line);)
    text << (line.starts_with("params: ") ? "params: " + parameters : line) << '\n';
  return text.str() + more;
}

pipeline::PipelineOptions cut_at(const std::set<int>& cuts, int nodes) {
  pipeline::PipelineOptions options;
  options.partitions = static_cast<int64_t>(cuts.size()) + 1;
  options.micro_batches = 2;
  options.bind_threads = false;
  base::Tree counts = base::Tree::list();
  int before = 0;
  for (const int cut : cuts) {
    counts.items().push_back(base::Tree::scalar(std::to_string(cut - before)));
    before = cut;
  }
  counts.items().push_back(base::Tree::scalar(std::to_string(nodes - before)));
  options.balance = counts;
  return options;
}

/// For every K of 2 to 8, sets of cuts that together hold every place: those that lie a (K - 1)th of the network apart, from
/// each place of the first such part on.
void check_cuts(const test::SmallRun& run) {
  const int nodes = test::network_of(run.network, run.input, run.classes).loss_node();
  REQUIRE(nodes > 20);
  const auto unpiped = test::run_steps(run, cut_at({}, nodes), 2);
  for (int partitions = 2; partitions <= 8; ++partitions) {
    const int places = nodes - 1, apart = (places + partitions - 2) / (partitions - 1);
    std::set<int> all;
    for (int first = 0; first < apart; ++first) {
      std::set<int> cuts;
      for (int i = 0; i + 1 < partitions; ++i) cuts.insert(1 + (first + i * apart) % places);
      for (int spare = 1; static_cast<int>(cuts.size()) + 1 < partitions; ++spare) cuts.insert(spare);
      CAPTURE(fmt::format("{}", fmt::join(cuts, ", ")));
      CHECK(test::run_steps(run, cut_at(cuts, nodes), 2) == unpiped);
      all.merge(cuts);
    }
    CHECK(static_cast<int>(all.size()) == places);
  }
}

}  // namespace

TEST_SUITE("slow") {
  TEST_CASE("AmoebaNet-D gives the same bits wherever it is cut, for K of 2 to 8") {
    test::SmallRun run;
    run.network = network_file("amoebanet-d", "{L: 3, D: 8, classes: 4}");
    run.input = {16, 16, 3};
    run.batch_size = 4;
    check_cuts(run);
  }

  TEST_CASE("a U-Net gives the same bits wherever it is cut, for K of 2 to 8") {
    test::SmallRun run;
    run.network = network_file("unet", "{B: 1, C: 2, classes: 3}", "- global_avg_pool\n- linear: {out_features: 4}\n");
    run.input = {32, 32, 3};
    run.batch_size = 4;
    check_cuts(run);
  }
}
