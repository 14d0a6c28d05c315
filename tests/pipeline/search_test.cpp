// Search and advice, on made-up costs: what is said about a plan is true of the plan.
#include "core/pipeline/search.h"

#include "core/base/error.h"
#include "core/pipeline/advice.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

using namespace gpipe;
using pipeline::Candidate;
using pipeline::Rematerialize;

namespace {

base::Tree bytes(int64_t count) { return base::Tree::scalar(std::to_string(count)); }

graph::Network network() { return test::network_of(test::k_residual_network, {7, 6, 3}, 4); }

pipeline::SearchRequest request_of(const graph::Network& net, int devices) {
  pipeline::SearchRequest request{net, {}, 16, 1, devices, 0, {1, 2, 4}, {}};
  request.options.bind_threads = false;
  request.costs = [&net](int64_t micro_batches) {
    const double unit = 1.0 / static_cast<double>(micro_batches);
    return std::vector<pipeline::NodeProfile>(net.nodes.size(), {unit, unit, unit / 2, 0});
  };
  return request;
}

std::unique_ptr<pipeline::Plan> plan_of(const graph::Network& net, const pipeline::PipelineOptions& options, double unit) {
  const std::vector<pipeline::NodeProfile> costs(net.nodes.size(), {unit, unit, unit / 2, 0});
  return pipeline::make_plan(net, {options, 16, 1, costs});
}

pipeline::PipelineOptions options_of(int partitions, int micro_batches) {
  pipeline::PipelineOptions options;
  options.partitions = partitions;
  options.micro_batches = micro_batches;
  options.bind_threads = false;
  return options;
}

}  // namespace

TEST_CASE("the candidates stand in order, and their figures are those of the plans they name") {
  const auto net = network();
  const auto candidates = pipeline::search(request_of(net, 3));
  REQUIRE(candidates.size() > 20);
  CHECK(std::is_sorted(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.step_seconds < b.step_seconds; }));
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1"})
    CHECK(std::any_of(candidates.begin(), candidates.end(), [&](const auto& c) { return c.options.schedule == schedule; }));
  for (size_t i = 0; i < candidates.size(); i += 7) {
    const Candidate& candidate = candidates[i];
    CAPTURE(
        fmt::format("{} K={} M={}", candidate.options.schedule, candidate.options.partitions, candidate.options.micro_batches));
    const auto plan = plan_of(net, candidate.options, 1.0 / static_cast<double>(candidate.options.micro_batches));
    CHECK(pipeline::predict(*plan).step_seconds() == doctest::Approx(candidate.step_seconds));
    CHECK(pipeline::memory_verdict(*plan).bytes == candidate.largest_bytes);
  }
  CHECK(candidates.front().options.partitions == 3);
  CHECK(candidates.back().options.partitions == 1);
}

TEST_CASE("under a limit, those that fit come first and fastest, the others after them with the least excess first") {
  const auto net = network();
  auto request = request_of(net, 2);
  const auto free = pipeline::search(request);
  std::vector<int64_t> sizes;
  for (const Candidate& candidate : free) sizes.push_back(candidate.largest_bytes);
  std::sort(sizes.begin(), sizes.end());
  request.options.memory_limit = bytes(sizes[sizes.size() / 3]);
  const auto limited = pipeline::search(request);
  CHECK(limited.front().fits());
  CHECK_FALSE(limited.back().fits());
  CHECK(std::is_partitioned(limited.begin(), limited.end(), [](const Candidate& c) { return c.fits(); }));
  CHECK(limited.front().step_seconds >= 0.9 * free.front().step_seconds);  // the slowest stage is not all of a step
  request.options.memory_limit = bytes(1000);
  const auto none = pipeline::search(request);
  CHECK_FALSE(none.front().fits());
  CHECK(none.front().excess() <= none.back().excess());
}

TEST_CASE("with batch norm no micro-batch gets small, and what a search is told to keep stays") {
  const auto net = network();  // has batch norm
  auto request = request_of(net, 2);
  request.micro_batches = {};
  request.batch_size = 64;
  for (const Candidate& candidate : pipeline::search(request))
    CHECK(candidate.options.micro_batches * pipeline::k_least_samples <= 64);
  const auto plain = test::network_of("[{linear: {out_features: 8}}, relu, {linear: {out_features: 4}}]", {6}, 4);
  pipeline::SearchRequest without{plain, {}, 64, 1, 2, 0, {}, {}};
  const auto free = pipeline::search(without);
  CHECK(std::any_of(free.begin(), free.end(), [](const Candidate& c) { return c.options.micro_batches == 64; }));
  without.options.micro_batches = 6;
  without.options.schedule = "1f1b";
  without.options.partitions = 2;
  without.options.rematerialize = Rematerialize::none;
  without.options.search_keeps = {"micro_batches", "schedule", "rematerialize", "partitions"};
  const auto kept = pipeline::search(without);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].options.micro_batches == 6);
  CHECK(kept[0].options.schedule == "1f1b");
}

TEST_CASE("on fewer cores than threads no candidate is faster than its work on those cores") {
  const auto net = network();
  auto request = request_of(net, 3);
  const auto apart = pipeline::search(request);
  request.cores = 1;
  const auto shared = pipeline::search(request);
  CHECK(apart.front().options.partitions == 3);
  const double work = shared.back().step_seconds;  // of one stage that recomputes: more than that is in no candidate
  for (const Candidate& candidate : shared) CHECK(candidate.step_seconds >= 0.6 * work);
  CHECK(apart.front().step_seconds < 0.5 * work);
}

TEST_CASE("the advice to move a cut names the dearest stage and a cut that makes it cheaper") {
  const auto net = network();
  auto options = options_of(2, 16);
  options.balance = base::Tree::list({base::Tree::scalar("2"), base::Tree::scalar(std::to_string(net.loss_node() - 2))});
  const auto plan = plan_of(net, options, 1);
  const auto words = pipeline::advice({*plan, pipeline::predict(*plan), 0});
  REQUIRE(!words.empty());
  CHECK(words[0].starts_with("stage 1 takes "));
  const size_t at = words[0].find("before layer ");
  REQUIRE(at != std::string::npos);
  const std::string layer = words[0].substr(at + 13, words[0].find(',', at) - at - 13);
  int cut = 0;
  while (cut < net.loss_node() && net.nodes[static_cast<size_t>(cut)].name != layer) ++cut;
  REQUIRE(cut > 2);
  options.balance =
      base::Tree::list({base::Tree::scalar(std::to_string(cut)), base::Tree::scalar(std::to_string(net.loss_node() - cut))});
  const auto better = plan_of(net, options, 1);
  CHECK(pipeline::predict(*better).step_seconds() < pipeline::predict(*plan).step_seconds());
}

TEST_CASE("the advice on idle time gives the bubble of this M and of a larger one") {
  const auto net = test::network_of(R"([{repeat: {times: 8, body: [{linear: {out_features: 6}}]}}])", {6}, 6);
  std::vector<pipeline::NodeProfile> costs(net.nodes.size(), {1, 0, 2, 0});
  costs.back() = {};
  for (const auto& [micro_batches, more] : {std::pair{1, 4}, std::pair{4, 16}}) {
    auto options = options_of(4, micro_batches);
    options.rematerialize = Rematerialize::none;
    const auto plan = pipeline::make_plan(net, {options, 16, 0, costs});
    const auto words = pipeline::advice({*plan, pipeline::predict(*plan), 0});
    REQUIRE(words.size() == 1);
    const auto percent = [](int m) { return 100.0 * 3 / (m + 3); };
    CHECK(words[0] == fmt::format("M={} on K=4 leaves {:.0f} % idle; M={} leaves {:.0f} %", micro_batches, percent(micro_batches),
                                  more, percent(more)));
  }
}

TEST_CASE("more stages than cores is said, with the time that the cores need at least") {
  const auto net = network();
  const auto plan = plan_of(net, options_of(4, 16), 1);
  const auto prediction = pipeline::predict(*plan);
  const auto words = pipeline::advice({*plan, prediction, 2});
  REQUIRE(!words.empty());
  CHECK(words.back().starts_with("4 stages of 1 thread share 2 cores"));
}

TEST_CASE("a plan that does not fit says by how much, and the change it proposes does fit") {
  const auto net = network();
  auto options = options_of(1, 4);
  options.rematerialize = Rematerialize::none;
  const int64_t kept = pipeline::memory_verdict(*plan_of(net, options, 1)).bytes;
  options.memory_limit = bytes(kept - 1);
  const std::string words = pipeline::misfit_words(*plan_of(net, options, 1));
  CHECK(words.find("1 B too much") != std::string::npos);
  CHECK(words.find("it would fit") != std::string::npos);
  CHECK(words.find("pipeline.rematerialize: auto") != std::string::npos);
  options.rematerialize = Rematerialize::automatic;
  CHECK(pipeline::memory_verdict(*plan_of(net, options, 1)).fits());
  options.memory_limit = bytes(1000);
  CHECK(pipeline::misfit_words(*plan_of(net, options, 1)).find("too large for such devices") != std::string::npos);
}
