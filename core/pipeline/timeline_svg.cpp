// The SVG of timelines. Lengths are in pixels; times become pixels on one scale for all panels.
#include "core/base/text.h"
#include "core/pipeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gpipe::pipeline {
namespace {

constexpr double k_left = 84, k_plot = Timeline::k_columns, k_right = 64;
constexpr int k_slice = 3;  // pixels of a slice of time where spans are too many
constexpr double k_top = 16, k_title = 30, k_axis = 40, k_legend = 44;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= ' ')
      out += c;
  }
  return out;
}

/// Pixels with two decimals at most, without trailing zeros: half of the file is numbers.
std::string px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

/// With one stage a device, people speak of stages.
const char* noun(const Timeline& timeline) { return timeline.stages() > timeline.devices() ? "device" : "stage"; }

struct RowShape {
  double pitch, height;
  int font;  // 0: too low for text
};
RowShape shape_for(size_t rows) {
  if (rows <= 10) return {32, 28, 13};
  if (rows <= 20) return {24, 21, 12};
  if (rows <= 40) return {16, 14, 10};
  return {9, 8, 0};
}

class Writer {
 public:
  explicit Writer(double end) : scale_(k_plot / end), end_(end) {}

  double x(double time) const { return time * scale_; }

  void text(double at_x, double at_y, const std::string& words, const char* anchor = "start", const char* more = "") {
    fmt::format_to(out(), "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(at_x), px(at_y), anchor, more,
                   escaped(words));
  }
  void rectangle(double at_x, double at_y, double width, double height, const char* fill, const char* stroke = "none") {
    fmt::format_to(out(), "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"{}\"/>\n", px(at_x), px(at_y),
                   px(width), px(height), fill, stroke);
  }

  /// All bars of a kind in a row as one path: a few bytes each.
  void path(const std::string& data, Activity activity, const std::string& hint) {
    if (data.empty()) return;
    fmt::format_to(out(), "<path fill=\"{}\" d=\"{}\"><title>{}</title></path>\n", paint_of(activity).fill, data, escaped(hint));
  }

  void axis(double at_y, double rows_height) {
    const double step = tick_step(end_, 12);
    std::string lines;
    for (int i = 0; i * step <= end_ * (1 + 1e-9); ++i) {
      lines += fmt::format("M{} {}v{}", px(x(i * step)), px(at_y - rows_height), px(rows_height + 5));
      text(x(i * step), at_y + 18, tick_text(i * step, step), "middle");
    }
    fmt::format_to(out(), "<path fill=\"none\" stroke=\"#000\" stroke-opacity=\"0.18\" stroke-width=\"1\" d=\"{}\"/>\n", lines);
    text(k_plot + k_right - 8, at_y + 18, "ms", "end");  // clear of a number at the very end
  }

  std::string body;
  bool has_labels = false, has_stages = false;

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(body); }
  double scale_, end_;
};

std::string box(double at_x, double at_y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h{}z", px(at_x), px(at_y), px(width), px(height), px(-width));
}

/// A light gap between neighbours that are wide enough to be told apart.
double gap_for(double width) { return width >= 4 ? 0.5 : width >= 2 ? 0.25 : 0; }

std::string hint_for(const Timeline& timeline, size_t row, Activity activity) {
  return fmt::format("{} {}: {}", noun(timeline), timeline.rows()[row], words_of(activity));
}

constexpr int k_least_font = 8;
/// The largest size, up to `most`, at which so many digits fit into a bar; 0: none.
int font_for(double room, size_t digits, int most) {
  const int size = std::min(most, static_cast<int>((room - 2) / (0.58 * static_cast<double>(digits))));
  return size >= k_least_font ? size : 0;
}

/// The number of a micro-batch in the middle of its bar, and the stage's after a dot where a device has several. Bars in which
/// the largest number would not fit have none: gaps in a row of numbers would puzzle.
std::string label_of(Writer& writer, const Timeline& timeline, const Timeline::Bar& bar, double width, double y,
                     const RowShape& shape) {
  if (bar.micro < 0 || shape.font == 0) return {};
  std::string text = std::to_string(bar.micro);
  const size_t digits = std::to_string(timeline.last_micro()).size();
  int font = font_for(width, digits, shape.font);
  if (timeline.stages() > timeline.devices()) {
    const int smaller = font_for(width, digits + 1 + std::to_string(timeline.stages() - 1).size(), shape.font);
    if (smaller > 0) {
      text += fmt::format(".{}", bar.stage);
      font = smaller;
      writer.has_stages = true;
    }
  }
  if (font == 0) return {};
  writer.has_labels = true;
  return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", px(writer.x(bar.start) + width / 2),
                     px(y + shape.height / 2 + 0.36 * font),
                     font == shape.font ? std::string() : fmt::format(" font-size=\"{}\"", font), text);
}

void draw_bars(Writer& writer, const Timeline& timeline, size_t row, double y, const RowShape& shape) {
  std::array<std::string, k_activities> paths;
  std::array<std::string, k_activities> labels;
  for (const Timeline::Bar& bar : timeline.bars(row)) {
    const double from = writer.x(bar.start), width = writer.x(bar.end) - from, gap = gap_for(width);
    const auto activity = static_cast<size_t>(bar.activity);
    paths[activity] += box(from + gap, y, width - 2 * gap, shape.height);
    labels[activity] += label_of(writer, timeline, bar, width, y, shape);
  }
  for (size_t i = 0; i < k_activities; ++i) {
    const auto activity = static_cast<Activity>(i);
    writer.path(paths[i], activity, hint_for(timeline, row, activity));
    if (labels[i].empty()) continue;
    writer.body += fmt::format("<g fill=\"{}\" font-size=\"{}\" text-anchor=\"middle\" pointer-events=\"none\">\n{}</g>\n",
                               paint_of(activity).text, shape.font, labels[i]);
  }
}

/// Too many to draw one by one: in each slice of time, the activities upon each other, as high as their shares of it. Heights
/// are whole pixels, so that neighbours alike become one box.
void draw_shares(Writer& writer, const Timeline& timeline, size_t row, double y, const RowShape& shape) {
  using Heights = std::array<int, k_activities + 1>;  // where each activity begins, from below
  const auto heights_at = [&](int column) {
    const auto shares = timeline.shares(row, column, column + k_slice);
    Heights heights{};
    double sum = 0;
    for (size_t i = 0; i < k_activities; ++i) heights[i + 1] = static_cast<int>(std::lround((sum += shares[i]) * shape.height));
    return heights;
  };
  std::array<std::string, k_activities> paths;
  const double pixel = writer.x(timeline.end()) / Timeline::k_columns;
  Heights now = heights_at(0);
  for (int first = 0, last = k_slice; first < Timeline::k_columns; last += k_slice) {
    const bool ends = last == Timeline::k_columns;
    const Heights next = ends ? Heights{} : heights_at(last);
    if (!ends && next == now) continue;
    for (size_t i = 0; i < k_activities; ++i)
      if (now[i + 1] > now[i])
        paths[i] += box(first * pixel, y + shape.height - now[i + 1], (last - first) * pixel, now[i + 1] - now[i]);
    first = last;
    now = next;
  }
  for (size_t i = 0; i < k_activities; ++i)
    writer.path(paths[i], static_cast<Activity>(i), hint_for(timeline, row, static_cast<Activity>(i)));
}

std::string left_out(const Timeline& timeline) {
  std::string words;
  const int rows = static_cast<int>(timeline.rows().size());
  if (rows < timeline.devices()) words = fmt::format("{} of {} {}s shown", rows, timeline.devices(), noun(timeline));
  if (!timeline.keeps_bars())
    words += fmt::format("{}{} spans, too many to draw: heights are shares of time", words.empty() ? "" : "; ",
                         base::format_count(static_cast<int64_t>(timeline.spans())));
  return words;
}

/// Title, rows and axis; returns the height it took.
double draw_panel(Writer& writer, const Timeline& timeline, double top) {
  const RowShape shape = shape_for(timeline.rows().size());
  writer.text(0, top + 15, timeline.title(), "start", " font-size=\"15\" font-weight=\"bold\"");
  writer.text(k_plot, top + 15, left_out(timeline), "end");
  writer.text(k_plot + k_right - 8, top + 15, "idle", "end");
  double y = top + k_title - 4;
  const size_t every = shape.font > 0 ? 1 : 2;  // low rows: every other has room for its name
  for (size_t row = 0; row < timeline.rows().size(); ++row, y += shape.pitch) {
    if (row % every == 0) {
      const double base = y + shape.height / 2 + 4.5;
      writer.text(-8, base, fmt::format("{} {}", noun(timeline), timeline.rows()[row]), "end");
      const double idle = std::max(0.0, 100 * (1 - timeline.busy_share(row)));
      writer.text(k_plot + k_right - 8, base, fmt::format("{:.1f} %", idle), "end");
    }
    writer.rectangle(0, y, writer.x(timeline.end()), shape.height, k_idle_fill);
    timeline.keeps_bars() ? draw_bars(writer, timeline, row, y, shape) : draw_shares(writer, timeline, row, y, shape);
  }
  y -= shape.pitch - shape.height;
  writer.axis(y, y - top - k_title + 4);
  return y + k_axis - top;
}

void draw_legend(Writer& writer, const std::vector<Timeline>& timelines, double y) {
  double at = 0;
  const auto entry = [&](const char* fill, const std::string& words) {
    writer.rectangle(at, y, 16, 14, fill, "#999");
    writer.text(at + 22, y + 12, words);
    at += 22 + 7.2 * static_cast<double>(words.size()) + 18;
  };
  const auto any = [&](const auto& is) { return std::any_of(timelines.begin(), timelines.end(), is); };
  for (int i = 0; i < k_activities; ++i) {
    const auto activity = static_cast<Activity>(i);
    if (any([&](const Timeline& t) { return t.occurs(activity); })) entry(paint_of(activity).fill, words_of(activity));
  }
  entry(k_idle_fill, "idle");
  if (!writer.has_labels) return;
  writer.text(at + 4, y + 12, writer.has_stages ? "numbers: micro-batch.stage" : "numbers: micro-batches");
}

}  // namespace

// Near Okabe and Ito's hues (forward blue, recompute sky blue, backward vermillion, its input half orange, weights green,
// update purple), each set to a lightness of its own.
Paint paint_of(Activity activity) {
  constexpr Paint paints[k_activities] = {{"#005a94", "#fff"}, {"#a6d8f5", "#000"}, {"#c94f00", "#fff"},
                                          {"#f2b233", "#000"}, {"#3fae86", "#000"}, {"#4b1d52", "#fff"}};
  return paints[static_cast<size_t>(activity)];
}

std::string svg_of(const std::vector<Timeline>& timelines) {
  double end = 0;
  for (const Timeline& timeline : timelines) end = std::max(end, timeline.end());
  Writer writer(end);
  double y = k_top;
  std::string titles;
  for (const Timeline& timeline : timelines) {
    y += draw_panel(writer, timeline, y);
    titles += (titles.empty() ? "" : "; ") + timeline.title();
  }
  draw_legend(writer, timelines, y);
  const double width = k_left + k_plot + k_right, height = y + k_legend - 14;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" font-size=\"13\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n<g transform=\"translate({3} 0)\">\n{4}</g>\n</svg>\n",
      px(width), px(height), escaped(titles), px(k_left), writer.body);
}

}  // namespace gpipe::pipeline
