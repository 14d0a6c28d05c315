#include "core/pipeline/advice.h"

#include "core/base/error.h"
#include "core/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace gpipe::pipeline {
namespace {

constexpr double k_uneven = 1.15;       // a stage this much dearer than the mean is worth a word
constexpr double k_much_idle = 0.25;    // so is a bubble of this share
constexpr double k_worth_while = 0.02;  // a change that saves less is not worth one

std::string percent(double share) { return fmt::format("{:.0f} %", 100.0 * share); }

/// Seconds of each node in a mini-batch: what a cut moves from one stage to the next.
std::vector<double> node_seconds(const Plan& plan, const Prediction& prediction) {
  std::vector<double> seconds(plan.costs.size(), 0.0);
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const StagePlan& of = plan.stages[stage];
    double sum = 0;
    for (int node = of.first_node; node < of.last_node; ++node) {
      const NodeProfile& cost = plan.costs[static_cast<size_t>(node)];
      sum += seconds[static_cast<size_t>(node)] = cost.forward + cost.backward();
    }
    const double all = prediction.stage_seconds(static_cast<int>(stage), plan);  // recompute included
    for (int node = of.first_node; node < of.last_node && sum > 0; ++node) seconds[static_cast<size_t>(node)] *= all / sum;
  }
  return seconds;
}

/// The single cut whose move lowers the slowest stage most.
struct Move {
  size_t cut = 0;  // index in boundaries
  int to = 0;      // its new place
  double slowest = 0;
};

double slowest(const Boundaries& boundaries, const std::vector<double>& seconds) {
  double most = 0;
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage)
    most = std::max(most, std::accumulate(seconds.begin() + boundaries[stage], seconds.begin() + boundaries[stage + 1], 0.0));
  return most;
}

Move best_move(const Plan& plan, const std::vector<double>& seconds, size_t stage) {
  Move best{0, 0, slowest(plan.boundaries, seconds)};
  for (const size_t cut : {stage, stage + 1}) {
    if (cut == 0 || cut + 1 == plan.boundaries.size()) continue;
    Boundaries moved = plan.boundaries;
    const int step = cut == stage ? 1 : -1;
    for (int to = plan.boundaries[cut] + step; to > moved[cut - 1] && to < moved[cut + 1]; to += step) {
      moved[cut] = to;
      const double now = slowest(moved, seconds);
      if (now < best.slowest) best = {cut, to, now};
    }
  }
  return best;
}

/// The slowest stage's seconds once the cut is moved; 0 when that plan does not fit.
double slowest_after(const Plan& plan, const Move& move) {
  Boundaries moved = plan.boundaries;
  moved[move.cut] = move.to;
  moved.back() -= 1;  // counts are without the loss
  PipelineOptions options = plan.options;
  std::vector<base::Tree> counts;
  for (size_t stage = 0; stage + 1 < moved.size(); ++stage)
    counts.push_back(base::Tree::scalar(std::to_string(moved[stage + 1] - moved[stage])));
  options.balance = base::Tree::list(std::move(counts));
  const auto then = make_plan(plan.network, {options, plan.micro_batches.mini_batch, plan.optimizer_slots, plan.costs});
  if (!memory_verdict(*then).fits()) return 0;
  const Prediction prediction = predict(*then);
  double most = 0;
  for (size_t stage = 0; stage < then->stages.size(); ++stage)
    most = std::max(most, prediction.stage_seconds(static_cast<int>(stage), *then));
  return most;
}

void say_uneven(const AdviceInput& in, std::vector<std::string>& words) {
  const Plan& plan = in.plan;
  if (plan.stages.size() < 2) return;
  std::vector<double> seconds;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage)
    seconds.push_back(in.prediction.stage_seconds(static_cast<int>(stage), plan));
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const auto dearest = static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
  if (all <= 0 || seconds[dearest] < k_uneven * all / static_cast<double>(seconds.size())) return;
  const std::string fact = fmt::format("stage {} takes {} of the time", dearest, percent(seconds[dearest] / all));
  const std::vector<double> by_node = node_seconds(plan, in.prediction);
  const Move move = best_move(plan, by_node, dearest);
  if (move.cut > 0 && move.slowest < (1 - k_worth_while) * seconds[dearest]) {
    const double then = slowest_after(plan, move);
    if (then > 0 && then < (1 - k_worth_while) * seconds[dearest]) {
      words.push_back(fmt::format("{}: move the cut {} layer {}, and the slowest takes {} instead of {}", fact,
                                  move.to < plan.boundaries[move.cut] ? "forward, before" : "back, before",
                                  plan.network.nodes[static_cast<size_t>(move.to)].name, base::format_duration(then),
                                  base::format_duration(seconds[dearest])));
      return;
    }
  }
  const StagePlan& of = plan.stages[dearest];
  const auto layer = std::max_element(by_node.begin() + of.first_node, by_node.begin() + of.last_node) - by_node.begin();
  words.push_back(fmt::format("{}, and no move of a cut makes it better{}: its dearest layer, {}, takes {} alone", fact,
                              plan.options.memory_limit.is_null() ? "" : " within the memory limit",
                              plan.network.nodes[static_cast<size_t>(layer)].name,
                              percent(by_node[static_cast<size_t>(layer)] / all)));
}

void say_idle(const AdviceInput& in, std::vector<std::string>& words) {
  const Plan& plan = in.plan;
  if (plan.schedule.devices < 2) return;
  const double now = in.prediction.bubble();
  const int micro_batches = plan.micro_batches.count();
  if (now < k_much_idle) return;
  for (int more = micro_batches * 4; more > micro_batches; more /= 2) {
    if (more > plan.micro_batches.mini_batch) continue;
    const double then = bubble_with(plan, in.prediction, more);
    if (then < 0 || then > now - k_worth_while) continue;
    words.push_back(fmt::format("M={} on K={} leaves {} idle; M={} leaves {}", micro_batches, plan.schedule.devices, percent(now),
                                more, percent(then)));
    return;
  }
  words.push_back(
      fmt::format("M={} on K={} leaves {} idle, and this mini-batch of {} gives no more micro-batches that would help",
                  micro_batches, plan.schedule.devices, percent(now), plan.micro_batches.mini_batch));
}

void say_shared(const AdviceInput& in, std::vector<std::string>& words) {
  const auto wanted = in.plan.schedule.devices * in.plan.options.threads;
  if (in.plan.options.device != "cpu" || in.cores == 0 || wanted <= in.cores) return;
  const double least = least_seconds(in.plan, in.prediction, in.cores);
  words.push_back(fmt::format(
      "{} stages of {} thread{} share {} core{}: the timeline is that of as many cores as threads; here a step takes {} or more",
      in.plan.schedule.devices, in.plan.options.threads, in.plan.options.threads == 1 ? "" : "s", in.cores,
      in.cores == 1 ? "" : "s", base::format_duration(std::max(least, in.prediction.step_seconds()))));
}

/// A change of the plan in words, and what the fullest device takes then.
struct Change {
  std::string words;
  PipelineOptions options;
  int64_t batch_size = 0;
};

std::vector<Change> changes(const Plan& plan) {
  const PipelineOptions& now = plan.options;
  const int64_t batch = plan.micro_batches.mini_batch;
  std::vector<Change> all;
  const auto add = [&](std::string words, auto&& edit) {
    Change change{std::move(words), now, batch};
    change.options.algorithms = nullptr;  // nothing is measured for what is only looked at
    edit(change);
    all.push_back(std::move(change));
  };
  for (const auto& [name, policy] : {std::pair{"auto", Rematerialize::automatic}, std::pair{"full", Rematerialize::full}})
    if (now.rematerialize != policy)
      add(fmt::format("pipeline.rematerialize: {}", name), [&](Change& c) { c.options.rematerialize = policy; });
  for (const int factor : {2, 4, 8, 16}) {
    const int64_t more = now.micro_batches * factor;
    if (more <= batch)
      add(fmt::format("pipeline.micro_batches: {}, rematerialize: full", more), [&](Change& c) {
        c.options.micro_batches = more;
        c.options.rematerialize = Rematerialize::full;
      });
  }
  add("pipeline.schedule: 1f1b, rematerialize: full", [&](Change& c) {
    c.options.schedule = "1f1b";
    c.options.chunks = 0;
    c.options.rematerialize = Rematerialize::full;
  });
  for (const int factor : {2, 4, 8})
    add(fmt::format("pipeline.partitions: {}, rematerialize: full", now.partitions * factor), [&](Change& c) {
      c.options.partitions = now.partitions * factor;
      c.options.balance = {};
      c.options.rematerialize = Rematerialize::full;
    });
  for (const int factor : {2, 4, 8, 16})
    if (batch / factor >= now.micro_batches)
      add(fmt::format("train.batch_size: {}, pipeline.rematerialize: full", batch / factor), [&](Change& c) {
        c.batch_size = batch / factor;
        c.options.rematerialize = Rematerialize::full;
      });
  return all;
}

}  // namespace

double bubble_with(const Plan& plan, const Prediction& prediction, int micro_batches) {
  const ScheduleType& type = find_schedule(plan.options.schedule);
  const double scale = static_cast<double>(plan.micro_batches.count()) / micro_batches;
  ScheduleRequest request{.devices = plan.schedule.devices,
                          .micro_batches = micro_batches,
                          .chunks = plan.schedule.stages / plan.schedule.devices,
                          .memory_limit = plan.options.activation_limit};
  SimulationInput input;
  for (StageCost cost : prediction.stages) {
    for (double* part : {&cost.forward, &cost.backward_input, &cost.backward_weight, &cost.recompute}) *part *= scale;
    input.costs.push_back(cost);
  }
  request.costs = input.costs;
  input.finish = prediction.update;
  try {
    check_request(type, request);
    const Schedule schedule = with_recompute(type.make(request), [&](int stage, int micro) {
      return plan.schedule.recomputed(stage, std::min(micro, plan.micro_batches.count() - 1)) &&
             (micro > 0 || plan.schedule.recomputed(stage, 0));
    });
    Prediction other;
    other.simulation = simulate(schedule, input);
    return other.bubble();
  } catch (const base::ConfigError&) { return -1; }
}

std::vector<std::string> advice(const AdviceInput& input) {
  std::vector<std::string> words;
  say_uneven(input, words);
  say_idle(input, words);
  say_shared(input, words);
  return words;
}

std::string misfit_words(const Plan& plan) {
  const MemoryVerdict verdict = memory_verdict(plan);
  if (verdict.fits()) return {};
  std::string text =
      fmt::format("device {} takes {} of the limit of {}, {} too much", verdict.device, base::format_bytes(verdict.bytes),
                  base::format_bytes(verdict.limit), base::format_bytes(verdict.bytes - verdict.limit));
  for (const Change& change : changes(plan)) {
    try {
      const auto changed = make_plan(plan.network, {change.options, change.batch_size, plan.optimizer_slots, {}});
      const MemoryVerdict then = memory_verdict(*changed);
      if (!then.fits()) continue;
      return fmt::format("{}; it would fit ({}) with {}", text, base::format_bytes(then.bytes), change.words);
    } catch (const base::Error&) {  // no such plan, or no room for its search
    }
  }
  return text +
         "; no change of micro-batches, schedule, recompute or up to 8 times the devices makes it fit: the network is too "
         "large for such devices";
}

}  // namespace gpipe::pipeline
