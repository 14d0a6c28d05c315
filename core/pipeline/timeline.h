// Timeline: what ran when on each device, and its two pictures, one for browsers and one for terminals.
//
// Filled span by span, from the simulator or from a real step; it keeps the spans while there are few and what fills each
// pixel in any case, so that its memory does not grow with the number of tasks. A value; one thread at a time.
#pragma once

#include "core/pipeline/simulate.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// What a device does: the works of a schedule, in their order, and what follows the last one.
enum class Activity : uint8_t { forward, recompute, backward, backward_input, backward_weight, update };
constexpr int k_activities = 6;
constexpr Activity activity_of(Work work) { return static_cast<Activity>(work); }
/// F, R, B, B, W, U
char letter(Activity activity);
const char* words_of(Activity activity);

/// How the SVG paints an activity. The colours differ for every kind of colour vision, and by lightness alone.
struct Paint {
  const char* fill;
  const char* text;  // for what is written upon it
};
Paint paint_of(Activity activity);
constexpr const char* k_idle_fill = "#efefef";

class Timeline {
 public:
  static constexpr int k_columns = 1200;        // pixels of an SVG's time axis
  static constexpr size_t k_most_bars = 20000;  // kept one by one; beyond, only what fills each pixel
  static constexpr int k_most_rows = 96;        // devices in a picture

  struct Bar {
    double start, end;
    Activity activity;
    int micro, stage;
  };

  /// Times are in ms from 0 to `end`. `title` is one line of text.
  Timeline(std::string title, int devices, int stages, double end);

  void add(const Span& span);
  /// Work after the last task: gradients made ready, weights updated.
  void add_update(int device, double start, double end);

  const std::string& title() const { return title_; }
  int devices() const { return devices_; }
  int stages() const { return stages_; }
  double end() const { return end_; }
  uint64_t spans() const { return spans_; }
  int last_micro() const { return last_micro_; }  // the largest number seen
  /// The devices of the rows; every so many of them when there are more than k_most_rows.
  const std::vector<int>& rows() const { return rows_; }
  bool keeps_bars() const { return keeps_bars_; }
  const std::vector<Bar>& bars(size_t row) const { return bars_[row]; }
  /// Of the time of columns [first, last) of a row; what is missing to 1 was idle.
  std::array<double, k_activities> shares(size_t row, int first, int last) const;
  double busy_share(size_t row) const;
  bool occurs(Activity activity) const { return occurs_[static_cast<size_t>(activity)]; }

 private:
  void put(int device, const Bar& bar);
  double& cell(size_t row, int column, size_t activity) {
    return cells_[(row * k_columns + static_cast<size_t>(column)) * k_activities + activity];
  }

  std::string title_;
  int devices_, stages_;
  double end_;
  uint64_t spans_ = 0;
  int last_micro_ = 0;
  size_t bar_count_ = 0;
  bool keeps_bars_ = true;
  std::vector<int> rows_;           // devices
  std::vector<int> row_of_device_;  // -1: not shown
  std::vector<std::vector<Bar>> bars_;
  std::vector<double> cells_;  // ms of each activity, by row and column
  std::array<bool, k_activities> occurs_{};
};

/// A round number of ms (1, 2 or 5 times a power of ten) that divides [0, end] into at most `most` parts.
double tick_step(double end, int most);
/// A tick as text: as many decimals as `step` needs.
std::string tick_text(double value, double step);

/// 92 columns, a line a device (at most 32 of them): in each place the letter of what takes most of that time, '.' for
/// idle; below, an axis in ms and the letters' meaning.
std::string text_of(const Timeline& timeline);

/// One SVG 1.1 document, self-contained and without scripts: the timelines below each other on one scale of time, a row a
/// device, with micro-batch numbers where there is room, idle shares, axis and legend. What was left out is said in it.
std::string svg_of(const std::vector<Timeline>& timelines);

}  // namespace gpipe::pipeline
