#include "core/base/problems.h"

#include "core/base/error.h"

#include <algorithm>

namespace gpipe::base {
namespace {

std::string line_of(const Location& where, const std::string& path, const std::string& message) {
  const std::string place = where.text();
  std::string line;
  // "--set train.seed" names the path already.
  const bool named = !path.empty() && where.line == 0 && place.ends_with(" " + path);
  if (!place.empty()) line += place + ": ";
  if (!path.empty() && !named) line += path + ": ";
  return line + message;
}

std::string joined(const std::vector<std::string>& notes) {
  std::string text;
  for (auto note = notes.rbegin(); note != notes.rend(); ++note) text += ", " + *note;
  return text;
}

}  // namespace

void Problems::add(const Location& where, const std::string& path, const std::string& message) {
  errors_.push_back(line_of(where, path, message) + joined(notes_));
}

void Problems::warn(const Location& where, const std::string& path, const std::string& message) {
  warnings_.push_back(line_of(where, path, message) + joined(notes_));
}

void Problems::throw_if_any() const {
  constexpr size_t shown = 50;  // more than a screen helps nobody
  if (errors_.empty()) return;
  std::string all = errors_.front();
  for (size_t i = 1; i < std::min(errors_.size(), shown); ++i) all += "\n" + errors_[i];
  if (errors_.size() > shown) all += fmt::format("\n... and {} more", errors_.size() - shown);
  throw ConfigError("{}", all);
}

}  // namespace gpipe::base
