// The pictures of a timeline say what its spans say.
#include "core/pipeline/timeline.h"

#include "tests/support/xml.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

using namespace gpipe;
using namespace gpipe::pipeline;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// K = 2, M = 2, one unit a task, gpipe by hand: F0 F1 . B0 B1 over F0 F1 B0 B1, and an update of half a unit.
Timeline two_stages(double unit = 8) {
  Timeline timeline("gpipe, K = 2", 2, 2, 6.5 * unit);
  const auto add = [&](int device, Work work, int micro, double start) {
    timeline.add({{work, micro, device}, device, start * unit, (start + 1) * unit, 0});
  };
  for (int micro = 0; micro < 2; ++micro) {
    add(0, Work::forward, micro, micro);
    add(1, Work::forward, micro, micro + 1);
    add(1, Work::backward, micro, micro + 3);
    add(0, Work::backward, micro, micro + 4);
  }
  for (int device = 0; device < 2; ++device) timeline.add_update(device, 6 * unit, 6.5 * unit);
  return timeline;
}

/// `count` spans side by side on each of some devices, forward and recompute in turn: 3/4 and 1/4 of the time.
Timeline crowded(int devices, int count) {
  Timeline timeline("crowded", devices, devices, count);
  for (int device = 0; device < devices; ++device)
    for (int i = 0; i < count; ++i) {
      timeline.add({{Work::forward, i, device}, device, i + 0.0, i + 0.75, 0});
      timeline.add({{Work::recompute, i, device}, device, i + 0.75, i + 1.0, 0});
    }
  return timeline;
}

double lightness(const std::string& colour) {
  double luminance = 0;
  const double weights[3] = {0.2126, 0.7152, 0.0722};
  for (size_t i = 0; i < 3; ++i) {
    const double value = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    luminance += weights[i] * (value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
  }
  return 116 * std::cbrt(luminance) - 16;
}

}  // namespace

TEST_CASE("the text shows in each place what takes most of that time, in 100 columns at most") {
  const auto lines = lines_of(text_of(two_stages()));
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == "gpipe, K = 2");
  // 80 places for 6.5 units: a unit takes 12.3 of them.
  const auto row = [](std::initializer_list<std::pair<int, char>> runs) {
    std::string text;
    for (const auto& [length, letter] : runs) text += std::string(static_cast<size_t>(length), letter);
    return text;
  };
  CHECK(lines[1] == "stage 0    " + row({{25, 'F'}, {24, '.'}, {25, 'B'}, {6, 'U'}}));
  CHECK(lines[2] == "stage 1    " + row({{12, '.'}, {25, 'F'}, {25, 'B'}, {12, '.'}, {6, 'U'}}));
  CHECK(contains(lines[3], "|----"));
  CHECK(contains(lines[4], "10"));
  CHECK(lines[4].ends_with("ms"));
  CHECK(contains(lines[5], "F forward  B backward  U update  . idle"));
  for (const std::string& line : lines) CHECK(line.size() <= 100);
}

TEST_CASE("marks stand where their numbers say, and numbers do not touch") {
  for (const double end : {0.003, 0.7, 1.0, 9.99, 52.0, 1234.5, 7e6}) {
    CAPTURE(end);
    const auto lines = lines_of(text_of(Timeline("t", 1, 1, end)));
    const std::string& marks = lines[2];
    const std::string& numbers = lines[3];
    CHECK(marks[11] == '|');
    CHECK(numbers[11] == '0');
    CHECK(std::count(marks.begin(), marks.end(), '|') >= 3);
    CHECK(numbers.ends_with(" ms"));
    CHECK(numbers.size() <= 100);
  }
}

TEST_CASE("ticks are round, at most as many as asked, and no fewer than half") {
  for (double end = 0.001; end < 1e7; end *= 1.37) {
    const double step = tick_step(end, 10);
    CAPTURE(end);
    CHECK(end / step <= 10 * (1 + 1e-9));
    CHECK(end / step >= 3.9);
    const double digit = step / std::pow(10, std::floor(std::log10(step * (1 + 1e-9))));
    CHECK((std::abs(digit - 1) < 1e-6 || std::abs(digit - 2) < 1e-6 || std::abs(digit - 5) < 1e-6));
  }
  CHECK(tick_text(0.15, 0.05) == "0.15");
  CHECK(tick_text(5, 1) == "5");
  CHECK(tick_text(25000, 5000) == "25,000");
}

TEST_CASE("the SVG is well-formed, stands by itself, and names what it shows") {
  Timeline odd("a < b & \"c\" > d", 1, 1, 1);
  odd.add({{Work::backward_weight, 3, 0}, 0, 0.25, 0.5, 0});
  const std::string svg = svg_of({two_stages(), odd});
  CHECK(test::xml_fault(svg) == "");
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(contains(svg, "gpipe, K = 2; a &lt; b &amp; \"c\" &gt; d"));
  for (const char* foreign : {"<script", "href", "url(", "<style", "<image"}) CHECK(!contains(svg, foreign));
  for (const char* words : {">forward<", ">backward<", ">weight gradients<", ">update<", ">idle<", ">stage 1<", ">ms<"})
    CHECK(contains(svg, words));
  CHECK(!contains(svg, ">recompute<"));  // the legend has what occurs
}

TEST_CASE("the check of well-formedness sees faults") {
  for (const char* text : {"<a><b></a></b>", "<a>", "<a/><b/>", "<a x=1/>", "<a>&</a>", "<a>></a>", "<a x=\"<\"/>", "x<a/>"})
    CHECK(test::xml_fault(text) != "");
  CHECK(test::xml_fault("<a x=\"1\"><b/>&lt;</a>\n") == "");
}

TEST_CASE("a bar stands where its span was, and carries its micro-batch where there is room") {
  Timeline timeline("t", 1, 1, 1200);  // a pixel is a ms
  timeline.add({{Work::forward, 7, 0}, 0, 100, 300, 0});
  timeline.add({{Work::forward, 8, 0}, 0, 300, 303, 0});
  const std::string svg = svg_of({timeline});
  CHECK(contains(svg, "M100.5 42h199v28h-199z"));  // less half a pixel on each side, so that neighbours part
  CHECK(contains(svg, ">7</text>"));
  CHECK(!contains(svg, ">8</text>"));
  CHECK(contains(svg, ">83.1 %</text>"));  // idle: 997 of 1200
  CHECK(contains(svg, "numbers: micro-batches"));
}

TEST_CASE("with several stages a device the rows are devices, and a label names the stage") {
  Timeline timeline("t", 2, 4, 100);
  timeline.add({{Work::forward, 7, 3}, 1, 10, 30, 0});
  const std::string svg = svg_of({timeline});
  CHECK(contains(svg, ">7.3</text>"));
  CHECK(contains(svg, ">device 1</text>"));
  CHECK(contains(text_of(timeline), "device 1"));
}

TEST_CASE("panels share one scale of time") {
  Timeline longer("long", 1, 1, 200), shorter("short", 1, 1, 100);
  longer.add({{Work::forward, 0, 0}, 0, 0, 100, 0});
  shorter.add({{Work::forward, 0, 0}, 0, 0, 100, 0});
  const std::string svg = svg_of({longer, shorter});
  CHECK(count_of(svg, "h599v28h-599z") == 2);  // 100 ms are half of 1200 pixels in both
}

TEST_CASE("too many spans or devices are joined, said to be, and keep the picture small") {
  const Timeline some = crowded(4, 2000);
  CHECK(some.keeps_bars());
  CHECK(!contains(svg_of({some}), "too many"));
  const Timeline many = crowded(200, 2000);
  CHECK(!many.keeps_bars());
  CHECK(many.rows().size() == Timeline::k_most_rows);
  CHECK(many.rows().front() == 0);
  CHECK(many.rows().back() == 199);
  const std::string svg = svg_of({many});
  CHECK(test::xml_fault(svg) == "");
  CHECK(contains(svg, "96 of 200 stages shown; 800,000 spans, too many to draw: heights are shares of time"));
  CHECK(svg.size() < 2'000'000);
  CHECK(contains(svg, "h1200v6h-1200z"));  // forward: 3/4 of 8 pixels, all the time
  CHECK(contains(svg, "h1200v2h-1200z"));  // recompute: the rest
  CHECK(contains(text_of(many), "32 of 200 stages shown"));
  for (const double share : many.shares(0, 0, 300)) CHECK((share < 1e-9 || std::abs(share - 0.25) < 1e-9 || share > 0.74));
}

TEST_CASE("activities differ by lightness alone, from each other and from idle, and their numbers can be read") {
  std::vector<double> all{lightness(k_idle_fill)};
  for (int i = 0; i < k_activities; ++i) {
    const Paint paint = paint_of(static_cast<Activity>(i));
    all.push_back(lightness(paint.fill));
    CHECK(std::abs(all.back() - (std::string(paint.text) == "#fff" ? 100 : 0)) > 45);
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) CHECK(all[i] - all[i - 1] > 6);
}

TEST_CASE("spans of no length leave no mark") {
  Timeline timeline("t", 1, 1, 10);
  timeline.add({{Work::recompute, 0, 0}, 0, 4, 4, 0});
  CHECK(timeline.spans() == 0);
  CHECK(!timeline.occurs(Activity::recompute));
}
