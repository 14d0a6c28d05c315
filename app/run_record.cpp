#include "app/run_record.h"

#include "core/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>

namespace gpipe::app {

RunRecord::RunRecord(const Command& command, const Composition& composition, const PlanPage& page, const RunFolder& folder)
    : command_(command), composition_(composition), page_(page), folder_(folder), begin_(std::chrono::steady_clock::now()) {}

nlohmann::json RunRecord::result(base::ExitCode code, const train::Trainer* trainer) const {
  nlohmann::json result{{"status", base::status_word(code)},
                        {"exit_code", static_cast<int>(code)},
                        {"name", composition_.config.name},
                        {"folder", folder_.path()},
                        {"parameters", composition_.network->parameter_count()},
                        {"arena_bytes", composition_.plan->arena_bytes()},
                        {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()}};
  if (trainer == nullptr) return result;
  const train::TrainState& state = trainer->state();
  result["steps"] = state.step;
  result["total_steps"] = trainer->total_steps();
  result["epochs"] = state.epoch;
  result["skipped_updates"] = trainer->skipped_updates();
  // From the metrics, so that a resume that had nothing left to do tells of the run and not of itself.
  const nlohmann::json& last = folder_.last_metrics();
  for (const char* key : {"loss", "accuracy", "learning_rate"})
    if (last.is_object() && last.contains(key)) result[key] = last[key];
  const nlohmann::json& validation = folder_.last_validation();
  if (validation.is_object())
    result["validation"] = {{"step", validation["step"]},
                            {"loss", validation["validation_loss"]},
                            {"accuracy", validation.value("validation_accuracy", nlohmann::json())},
                            {"samples", composition_.data.validation ? composition_.data.validation->size() : 0}};
  if (result.contains("validation") && validation.contains("validation_perplexity"))
    result["validation"]["perplexity"] = validation["validation_perplexity"];
  if (state.best)
    result["best"] = {{"metric", composition_.config.checkpoint.best}, {"value", *state.best}, {"step", state.best_step}};
  return result;
}

nlohmann::json RunRecord::comparison(const StepTimes& times, size_t arena_bytes) const {
  const auto row = [](double predicted, double measured) {
    return nlohmann::json{{"predicted", predicted}, {"measured", measured}};
  };
  nlohmann::json json{{"step_seconds", row(page_.median_step_seconds(), times.median_seconds())},
                      {"arena_bytes", {{"predicted", composition_.plan->arena_bytes()}, {"measured", arena_bytes}}},
                      {"bubble", row(page_.prediction().bubble(), times.median_bubble())},
                      {"times", composition_.costs_from},
                      {"steps", times.steps()}};
  return json;
}

void RunRecord::ended(const train::Trainer& trainer, const StepTimes& times, base::ExitCode code) {
  nlohmann::json all = result(code, &trainer);
  if (times.steps() > 0) all["prediction"] = comparison(times, trainer.arena_bytes());
  steps_now_ = times.seen();
  folder_.write("result.json", all.dump(2) + "\n");
  told_ = true;
  if (!command_.quiet && code == base::ExitCode::ok) summary(all);
  if (!command_.quiet && code == base::ExitCode::stopped)
    fmt::print("stopped by a signal at step {} of {}, saved; go on with --resume\n", trainer.state().step, trainer.total_steps());
  if (command_.json) fmt::print("{}\n", all.dump());
}

void RunRecord::failed(const std::exception_ptr& error, const train::Trainer* trainer) noexcept {
  if (told_) return;
  told_ = true;
  try {
    const base::Failure failure = base::failure_of(error);
    nlohmann::json all = result(failure.code, trainer);
    all["message"] = failure.message;
    folder_.write("result.json", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (command_.json) fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception& second) { std::fprintf(stderr, "warning: result.json: %s\n", second.what()); }
}

void RunRecord::summary(const nlohmann::json& result) const {
  const auto value = [](const nlohmann::json& number) { return number.is_number() ? number.get<double>() : NAN; };
  const int64_t steps = result["steps"].get<int64_t>();
  const auto now = static_cast<int64_t>(steps_now_);
  fmt::print("\n{} steps{} in {}", base::format_count(steps),
             now < steps ? fmt::format(", {} of them now,", base::format_count(now)) : std::string(),
             base::format_duration(result["seconds"].get<double>()));
  if (result.contains("validation")) {
    fmt::print("; validation loss {:.4f}", value(result["validation"]["loss"]));
    if (result["validation"].contains("perplexity")) fmt::print(", perplexity {:.3f}", value(result["validation"]["perplexity"]));
    if (composition_.data.train->spec().classes > 0)
      fmt::print(", accuracy {:.2f} %", 100.0 * value(result["validation"]["accuracy"]));
  }
  if (const int64_t skipped = result.value("skipped_updates", int64_t{0}); skipped > 0)
    fmt::print("; {} of the updates were left out", base::format_count(skipped));
  if (result.contains("best"))
    fmt::print("; best {} {:.4f} at step {}", composition_.config.checkpoint.best, value(result["best"]["value"]),
               result["best"]["step"].get<int64_t>());
  if (result.contains("prediction")) {
    const nlohmann::json& prediction = result["prediction"];
    const auto pair = [&](const char* key, const char* which) { return prediction[key][which].get<double>(); };
    base::Table table({{""}, {"predicted", base::Table::Align::right}, {"measured", base::Table::Align::right}});
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    table.add_row({"step", base::format_duration(pair("step_seconds", "predicted")),
                   base::format_duration(pair("step_seconds", "measured"))});
    table.add_row({"idle", percent(pair("bubble", "predicted")), percent(pair("bubble", "measured"))});
    const auto arena = [&](const char* which) { return base::format_bytes(prediction["arena_bytes"][which].get<int64_t>()); };
    table.add_row({"arenas", arena("predicted"), arena("measured")});
    const std::string from =
        fmt::format("(median of {} steps; predicted times {})", prediction["steps"].get<int64_t>(), composition_.costs_from);
    fmt::print("\n\n{}{}", table.text(), base::wrap(from, 110));
  }
  fmt::print("\nrun folder: {}\n", folder_.path());
}

}  // namespace gpipe::app
