#include "app/plan_search.h"

#include "app/config_fields.h"
#include "app/plan_page.h"
#include "app/session.h"
#include "app/yaml_writer.h"
#include "core/base/text.h"
#include "core/pipeline/advice.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace gpipe::app {
namespace {

using base::Table;
using pipeline::Candidate;

constexpr size_t k_shown = 10;

std::string words(const pipeline::PipelineOptions& options) {
  std::string text = options.schedule;
  if (options.chunks > 0) text += fmt::format(" V={}", options.chunks);
  if (options.activation_limit > 0) text += fmt::format(", {:g} activations", options.activation_limit);
  return text;
}

/// The settings that the search chose, as they stand in a configuration.
base::Tree chosen(const pipeline::PipelineOptions& options) {
  base::Tree tree = base::Tree::map();
  const auto set = [&](const char* key, const std::string& value) { tree.set(key, base::Tree::scalar(value)); };
  set("partitions", std::to_string(options.partitions));
  set("micro_batches", std::to_string(options.micro_batches));
  set("schedule", options.schedule);
  if (options.chunks > 0) set("chunks", std::to_string(options.chunks));
  if (options.activation_limit > 0) set("activation_limit", fmt::format("{:g}", options.activation_limit));
  set("rematerialize", name_of(options.rematerialize));
  return tree;
}

std::string samples_per_second(const Composition& c, const Candidate& candidate) {
  return base::format_count(static_cast<int64_t>(static_cast<double>(c.config.train.batch_size) / candidate.step_seconds));
}

/// The first that fit, less those that another of the same K and M beats in time and memory.
std::vector<Candidate> best_of(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> best;
  for (const Candidate& candidate : candidates) {
    if (!candidate.fits() || best.size() == k_shown) break;
    const bool beaten = std::any_of(best.begin(), best.end(), [&](const Candidate& other) {
      return other.options.partitions == candidate.options.partitions &&
             other.options.micro_batches == candidate.options.micro_batches && other.largest_bytes <= candidate.largest_bytes;
    });
    if (!beaten) best.push_back(candidate);
  }
  return best;
}

/// What M means for what is learned.
std::string about_micro_batches(const Composition& c) {
  if (c.config.pipeline.micro_batches > 0 && pipeline::has_batch_statistics(*c.network))
    return fmt::format(
        "batch norm takes its statistics from micro-batches: another M trains another network. M was tried where "
        "micro-batches have {} samples or more; pipeline.search_keeps: [micro_batches] leaves it as it is.",
        pipeline::k_least_samples);
  return "another M adds up in another order: results are equal within rounding only; pipeline.search_keeps: [micro_batches] "
         "leaves it as it is.";
}

/// What to change when no candidate fits: by the one that comes nearest.
std::string nothing_fits(const Composition& c, const Candidate& nearest) {
  const auto plan = plan_with(c, nearest.options);
  return fmt::format("nothing fits; nearest comes K={}, M={}, {}, rematerialize {}: {}", nearest.options.partitions,
                     nearest.options.micro_batches, words(nearest.options), name_of(nearest.options.rematerialize),
                     pipeline::misfit_words(*plan));
}

}  // namespace

SearchOutcome search_pipeline(const Composition& c, bool measured) {
  const pipeline::PipelineOptions& options = c.config.pipeline;
  SearchOutcome outcome;
  const auto served = pipeline::usable_cores(options) / static_cast<int>(options.threads);
  outcome.devices = options.partitions > 1 ? static_cast<int>(options.partitions) : std::max(1, served);
  pipeline::SearchRequest request{
      *c.network, options, c.config.train.batch_size, static_cast<int>(c.optimizer->slots().size()), outcome.devices, {}, {}};
  request.costs = [&](int64_t micro_batches) {
    pipeline::PipelineOptions of = options;
    of.micro_batches = micro_batches;
    return measured ? outcome.profiles[micro_batches] = profile_nodes(c, of) : node_profile(c, of);
  };
  outcome.candidates = pipeline::search(request);
  if (outcome.candidates.empty()) throw base::ConfigError("pipeline: there is no way to cut this network and mini-batch");
  return outcome;
}

std::string search_text(const Composition& c, const SearchOutcome& outcome) {
  const auto right = Table::Align::right;
  const auto& best = outcome.candidates.front();
  if (!best.fits()) return base::wrap(nothing_fits(c, best), 110) + "\n";
  Table table({{"K", right},
               {"M", right},
               {"schedule"},
               {"rematerialize"},
               {"step", right},
               {"samples/s", right},
               {"idle", right},
               {"fullest device", right}});
  for (const Candidate& candidate : best_of(outcome.candidates))
    table.add_row({std::to_string(candidate.options.partitions), std::to_string(candidate.options.micro_batches),
                   words(candidate.options), name_of(candidate.options.rematerialize),
                   base::format_duration(candidate.step_seconds), samples_per_second(c, candidate),
                   fmt::format("{:.1f} %", 100 * candidate.bubble), base::format_bytes(candidate.largest_bytes)});
  base::Tree yaml = base::Tree::map();
  yaml.set("pipeline", chosen(best.options));
  const auto fitting =
      std::count_if(outcome.candidates.begin(), outcome.candidates.end(), [](const auto& x) { return x.fits(); });
  std::string text = fmt::format(
      "{} pipelines on up to {} device{} of {} thread{}, {} of them fit. The best, simulated, leaving out those that one of the "
      "same K and M beats in time and memory (times {}):",
      outcome.candidates.size(), outcome.devices, outcome.devices == 1 ? "" : "s", c.config.pipeline.threads,
      c.config.pipeline.threads == 1 ? "" : "s", fitting, outcome.profiles.empty() ? c.costs_from : "measured here for each M");
  if (outcome.devices * c.config.pipeline.threads > pipeline::usable_cores(c.config.pipeline))
    text += fmt::format(" Threads share {} cores: no step is taken as shorter than all work on these.",
                        pipeline::usable_cores(c.config.pipeline));
  return fmt::format("{}\n\n{}\nThe first as a configuration has it:\n\n{}\n{}\n", base::wrap(text, 110), table.text(),
                     write_yaml(yaml), base::wrap(about_micro_batches(c), 110));
}

nlohmann::json search_json(const Composition& c, const SearchOutcome& outcome) {
  nlohmann::json list = nlohmann::json::array();
  for (const Candidate& candidate : outcome.candidates) {
    const auto& options = candidate.options;
    list.push_back({{"partitions", options.partitions},
                    {"micro_batches", options.micro_batches},
                    {"schedule", options.schedule},
                    {"chunks", options.chunks},
                    {"activation_limit", options.activation_limit},
                    {"rematerialize", name_of(options.rematerialize)},
                    {"step_seconds", candidate.step_seconds},
                    {"samples_per_second", static_cast<double>(c.config.train.batch_size) / candidate.step_seconds},
                    {"bubble", candidate.bubble},
                    {"fullest_device_bytes", candidate.largest_bytes},
                    {"limit", candidate.limit},
                    {"fits", candidate.fits()}});
  }
  return {{"devices", outcome.devices}, {"candidates", list}};
}

void take_best(Composition& c, const SearchOutcome& outcome) {
  const Candidate& best = outcome.candidates.front();
  if (!best.fits()) throw base::MemoryError("pipeline: {}", nothing_fits(c, best));
  c.config.pipeline = best.options;
  c.config.pipeline.search = false;
  if (const auto measured = outcome.profiles.find(best.options.micro_batches); measured != outcome.profiles.end()) {
    take_measured(c, measured->second);
  }
  c.plan = plan_with(c, c.config.pipeline);
}

}  // namespace gpipe::app
