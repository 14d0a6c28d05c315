#include "core/base/text.h"

#include "core/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

namespace gpipe::base {
namespace {

/// Characters, not bytes: what a terminal shows side by side.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// `value` over the largest unit that leaves at least 1, with one decimal; rounding up to the next unit is seen to.
template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  size_t unit = 0;
  while (unit + 1 < N && std::abs(value) >= base - 0.05) {
    value /= base;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  if (std::abs(bytes) < 1024) return fmt::format("{} B", bytes);
  static constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(static_cast<double>(bytes), 1024, units);
}

std::string format_count(int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string format_count_short(int64_t count) {
  if (std::abs(count) < 10'000) return format_count(count);
  static constexpr std::array<const char*, 7> units{"", "k", "M", "G", "T", "P", "E"};
  return scaled(static_cast<double>(count), 1000, units);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0) return fmt::format("-{}", format_duration(-seconds));
  if (seconds < 0.9995) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.00995 ? 2 : seconds < 0.0995 ? 1 : 0);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

void Table::add_row(std::vector<std::string> cells) {
  GP_CHECK(cells.size() <= columns_.size() && !columns_.empty());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::add_rule() { rows_.emplace_back(); }

std::string Table::text(const std::string& indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(width(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], row.empty() ? 0 : width(row[c]));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line = indent;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - width(cell), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::right ? padding + cell : cell + padding;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::vector<std::string> dashes;
  for (const size_t w : widths) dashes.emplace_back(w, '-');
  const auto dash = [&](size_t c) -> const std::string& { return dashes[c]; };
  add_line([&](size_t c) -> const std::string& { return columns_[c].title; });
  add_line(dash);
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_line(dash);
    } else {
      add_line([&](size_t c) -> const std::string& { return row[c]; });
    }
  }
  return out;
}

std::string wrap(const std::string& text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  std::istringstream words(text);
  bool starts = true;
  for (std::string word; words >> word; starts = false) {
    if (!starts && column + 1 + word.size() > width) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (!starts) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

}  // namespace gpipe::base
