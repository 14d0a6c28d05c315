#include "app/observers.h"

#include "core/base/median.h"
#include "core/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace gpipe::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double k_live_seconds = 0.1;
constexpr double k_plain_seconds = 5.0;

/// A console that cannot be written ends the run like any other full disk: nobody would see what it says.
void show() {
  if (std::fflush(stdout) != 0) throw base::FileError("standard output cannot be written; --quiet needs none");
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// JSON has no NaN: a number that is none is written as null.
nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

}  // namespace

void MetricsFile::step_done(const train::StepReport& report) {
  const bool due = report.step % every_ == 0 || report.validation || report.last_of_epoch || report.step == report.total_steps;
  if (!due) return;
  nlohmann::json line{{"step", report.step},
                      {"epoch", report.epoch},
                      {"loss", number(report.loss)},
                      {"accuracy", number(report.accuracy)},
                      {"learning_rate", report.learning_rate},
                      {"gradient_norm", number(report.gradient_norm)},
                      {"updated", report.updated},
                      {"samples_per_second", report.samples_per_second},
                      {"seconds", report.seconds},
                      {"seconds_waiting", report.seconds_waiting},
                      {"busy_seconds", std::vector<double>(report.busy_seconds.begin(), report.busy_seconds.end())},
                      {"bubble", report.bubble}};
  if (report.loss_scale > 0) {
    line["loss_scale"] = report.loss_scale;
    line["skipped_updates"] = report.skipped;
  }
  if (tokens_) {
    line["perplexity"] = number(std::exp(report.loss));
    line["tokens_per_second"] = report.targets_per_second;
  }
  if (plan_.network.loss_count() > 1) line["auxiliary_loss"] = number(report.auxiliary_loss);
  for (const pipeline::StagePlan& stage : plan_.stages) line["arena_bytes"].push_back(stage.memory.total());
  if (report.validation) {
    line["validation_loss"] = number(report.validation->loss);
    line["validation_accuracy"] = number(report.validation->accuracy);
    if (tokens_) line["validation_perplexity"] = number(std::exp(report.validation->loss));
  }
  folder_.append_metrics(line);
}

void StepTimes::step_done(const train::StepReport& report) {
  if (seen_++ == 0) return;
  const double seconds = report.seconds - report.seconds_waiting;
  if (seconds_.size() < k_kept) {
    seconds_.push_back(seconds);
    bubbles_.push_back(report.bubble);
    return;
  }
  seconds_[seen_ % k_kept] = seconds;
  bubbles_[seen_ % k_kept] = report.bubble;
}

double StepTimes::median_seconds() const { return base::median(seconds_); }
double StepTimes::median_bubble() const { return base::median(bubbles_); }

Console::Console(const train::SampleSpec& samples, int64_t steps_at_start)
    : terminal_(isatty(STDOUT_FILENO) == 1),
      has_classes_(samples.classes > 0),
      tokens_(samples.predicts_tokens()),
      first_step_(steps_at_start),
      start_(Clock::now()),
      last_(start_) {}

std::string Console::line(const train::StepReport& report) const {
  std::string text = fmt::format("epoch {} step {}/{}  loss {:.4f}", report.epoch, report.step, report.total_steps, report.loss);
  if (tokens_) text += fmt::format("  perplexity {:.2f}", std::exp(report.loss));
  if (has_classes_) text += fmt::format("  accuracy {:.1f} %", 100.0 * report.accuracy);
  const double done = static_cast<double>(report.step - first_step_);
  const double left = seconds(Clock::now() - start_) / done * static_cast<double>(report.total_steps - report.step);
  text += fmt::format("  {}  {} left", speed_text(), base::format_duration(left));
  if (!report.updated && report.loss_scale > 1)
    text += fmt::format("  (overflow at loss scale {:g}: update left out)", report.loss_scale);
  else if (!report.updated)
    text += "  (not finite: update left out)";
  return text;
}

std::string Console::speed_text() const { return fmt::format("{:.0f} {}/s", speed_, tokens_ ? "tokens" : "samples"); }

void Console::step_done(const train::StepReport& report) {
  const double speed = tokens_ ? report.targets_per_second : report.samples_per_second;
  speed_ = speed_ == 0 ? speed : 0.9 * speed_ + 0.1 * speed;
  const double waited = seconds(Clock::now() - last_);
  const bool last = report.step == report.total_steps;
  if (report.validation) {
    finish();
    std::string text =
        fmt::format("epoch {} step {}  validation loss {:.4f}", report.epoch, report.step, report.validation->loss);
    if (tokens_) text += fmt::format(", perplexity {:.3f}", std::exp(report.validation->loss));
    if (has_classes_) text += fmt::format(", accuracy {:.2f} %", 100.0 * report.validation->accuracy);
    fmt::print("{}  (training loss {:.4f}, {})\n", text, report.loss, speed_text());
    show();
  } else if (terminal_ ? waited < k_live_seconds && !last : waited < k_plain_seconds && !last && report.step > first_step_ + 1) {
    return;
  } else if (terminal_) {
    fmt::print("\r\x1b[2K{}", line(report));
    live_ = true;
    show();
  } else {
    fmt::print("{}\n", line(report));
    show();
  }
  last_ = Clock::now();
}

void Console::checkpoint_saved(const std::string& folder, int64_t step) {
  if (!terminal_) return;
  finish();
  fmt::print("saved step {} in {}\n", step, folder);
}

void Console::finish() {
  if (live_) std::fputc('\n', stdout);
  live_ = false;
}

}  // namespace gpipe::app
