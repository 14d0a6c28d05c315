#include "core/pipeline/timeline.h"

#include "core/base/error.h"
#include "core/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpipe::pipeline {
namespace {

constexpr int k_text_columns = 80;
constexpr int k_text_rows = 32;
static_assert(Timeline::k_columns % k_text_columns == 0);

/// `most` of `count`, evenly spread, first and last among them.
std::vector<int> spread(int count, int most) {
  const int shown = std::min(count, most);
  std::vector<int> all;
  for (int i = 0; i < shown; ++i) all.push_back(shown == 1 ? 0 : static_cast<int>(int64_t{i} * (count - 1) / (shown - 1)));
  return all;
}

/// The axis of the text: a line of marks, a line of numbers, those that would touch left out.
std::string text_axis(double end, const std::string& indent) {
  std::string marks(k_text_columns + 1, '-');
  std::string numbers(k_text_columns + 12, ' ');
  size_t free_from = 0;
  const double step = tick_step(end, 8);
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i) {
    const auto at = static_cast<size_t>(std::lround(i * step / end * k_text_columns));
    marks[at] = '|';
    const std::string text = tick_text(i * step, step);
    const size_t start = at < text.size() / 2 ? 0 : at - text.size() / 2;
    if (start < free_from) continue;
    numbers.replace(start, text.size(), text);
    free_from = start + text.size() + 1;
  }
  numbers.replace(std::max(free_from, size_t{k_text_columns} + 1), 2, "ms");
  return indent + marks + "\n" + indent + numbers.substr(0, numbers.find_last_not_of(' ') + 1) + "\n";
}

/// Of what takes most of a slice.
char letter_of(const std::array<double, k_activities>& shares) {
  const auto most = std::max_element(shares.begin(), shares.end());
  const double idle = 1 - std::accumulate(shares.begin(), shares.end(), 0.0);
  return *most > idle ? letter(static_cast<Activity>(most - shares.begin())) : '.';
}

}  // namespace

char letter(Activity activity) { return "FRBBWU"[static_cast<size_t>(activity)]; }

const char* words_of(Activity activity) {
  constexpr const char* words[k_activities] = {"forward",        "recompute",        "backward",
                                               "backward input", "weight gradients", "update"};
  return words[static_cast<size_t>(activity)];
}

Timeline::Timeline(std::string title, int devices, int stages, double end)
    : title_(std::move(title)),
      devices_(devices),
      stages_(stages),
      end_(end),
      rows_(spread(devices, k_most_rows)),
      row_of_device_(static_cast<size_t>(devices), -1) {
  GP_CHECK(std::isfinite(end) && end > 0 && devices > 0);
  for (size_t row = 0; row < rows_.size(); ++row) row_of_device_[static_cast<size_t>(rows_[row])] = static_cast<int>(row);
  bars_.resize(rows_.size());
  cells_.assign(rows_.size() * k_columns * k_activities, 0.0);
}

void Timeline::add(const Span& span) {
  put(span.device, {span.start, span.end, activity_of(span.task.work), span.task.micro, span.task.stage});
}

void Timeline::add_update(int device, double start, double end) { put(device, {start, end, Activity::update, -1, -1}); }

void Timeline::put(int device, const Bar& bar) {
  if (bar.end <= bar.start) return;
  ++spans_;
  last_micro_ = std::max(last_micro_, bar.micro);
  const auto activity = static_cast<size_t>(bar.activity);
  occurs_[activity] = true;
  const int row_index = row_of_device_[static_cast<size_t>(device)];
  if (row_index < 0) return;
  const auto row = static_cast<size_t>(row_index);
  const double width = end_ / k_columns;
  const int first = std::clamp(static_cast<int>(bar.start / width), 0, k_columns - 1);
  const int last = std::clamp(static_cast<int>(bar.end / width), 0, k_columns - 1);
  for (int column = first; column <= last; ++column)
    cell(row, column, activity) += std::max(0.0, std::min(bar.end, (column + 1) * width) - std::max(bar.start, column * width));
  if (!keeps_bars_) return;
  bars_[row].push_back(bar);
  if (++bar_count_ <= k_most_bars) return;
  keeps_bars_ = false;
  for (auto& bars : bars_) bars = {};
}

std::array<double, k_activities> Timeline::shares(size_t row, int first, int last) const {
  std::array<double, k_activities> sums{};
  for (int column = first; column < last; ++column)
    for (size_t i = 0; i < k_activities; ++i)
      sums[i] += cells_[(row * k_columns + static_cast<size_t>(column)) * k_activities + i];
  for (double& sum : sums) sum /= (last - first) * end_ / k_columns;
  return sums;
}

double Timeline::busy_share(size_t row) const {
  const auto all = shares(row, 0, k_columns);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

double tick_step(double end, int most) {
  const double least = end / most;
  double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10.0 * power;
}

std::string tick_text(double value, double step) {
  if (value >= 1000) return base::format_count(std::llround(value));
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string text_of(const Timeline& timeline) {
  std::string text = timeline.title() + "\n";
  const std::string name = timeline.stages() > timeline.devices() ? "device" : "stage";
  const std::vector<int> rows = spread(static_cast<int>(timeline.rows().size()), k_text_rows);
  const std::string indent(name.size() + 6, ' ');
  for (const int row : rows) {
    std::string line;
    for (int column = 0; column < k_text_columns; ++column) {
      constexpr int width = Timeline::k_columns / k_text_columns;
      line += letter_of(timeline.shares(static_cast<size_t>(row), column * width, (column + 1) * width));
    }
    text += fmt::format("{} {:<4} {}\n", name, timeline.rows()[static_cast<size_t>(row)], line);
  }
  text += text_axis(timeline.end(), indent);
  std::string legend;
  for (int i = 0; i < k_activities; ++i) {
    const auto activity = static_cast<Activity>(i);
    if (timeline.occurs(activity)) legend += fmt::format("{} {}  ", letter(activity), words_of(activity));
  }
  text += indent + legend + ". idle\n";
  if (static_cast<int>(rows.size()) < timeline.devices())
    text += fmt::format("{}{} of {} {}s shown\n", indent, rows.size(), timeline.devices(), name);
  return text;
}

}  // namespace gpipe::pipeline
