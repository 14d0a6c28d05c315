#include "app/changed_settings.h"

#include "core/base/scalar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace gpipe::app {
namespace {

using base::Tree;

/// On one line, as YAML in flow style.
std::string flow(const Tree& value) {
  if (value.is_scalar()) return value.text().empty() ? "\"\"" : value.text();
  std::vector<std::string> parts;
  for (const Tree& item : value.items()) parts.push_back(flow(item));
  for (const auto& [key, member] : value.members()) parts.push_back(key + ": " + flow(member));
  return fmt::format("{}{}{}", value.is_list() ? "[" : "{", fmt::join(parts, ", "), value.is_list() ? "]" : "}");
}

std::string shown(const Tree* value) {
  if (value == nullptr || value->is_null()) return "not set";
  std::string text = flow(*value);
  constexpr size_t most = 60;
  return base::without_controls(text.size() > most ? text.substr(0, most) + "..." : text);
}

class Comparison {
 public:
  Comparison(const std::set<std::string>& harmless, std::vector<std::string>& words) : harmless_(harmless), words_(words) {}

  void compare(const std::string& path, const Tree* before, const Tree* now) {
    if (harmless_.count(path) > 0 || equal(before, now)) return;
    if (before != nullptr && now != nullptr && before->is_map() && now->is_map()) return members(path, *before, *now);
    if (before != nullptr && now != nullptr && before->is_list() && now->is_list() &&
        before->items().size() == now->items().size()) {
      for (size_t i = 0; i < now->items().size(); ++i)
        compare(fmt::format("{}.{}", path, i), &before->items()[i], &now->items()[i]);
      return;
    }
    words_.push_back(fmt::format("{} was {} and is {} now", path, shown(before), shown(now)));
  }

 private:
  static bool equal(const Tree* before, const Tree* now) {
    const bool none_before = before == nullptr || before->is_null(), none_now = now == nullptr || now->is_null();
    return none_before || none_now ? none_before == none_now : *before == *now;
  }
  void members(const std::string& path, const Tree& before, const Tree& now) {
    for (const auto& [key, value] : now.members()) compare(path + "." + key, before.find(key), &value);
    for (const auto& [key, value] : before.members())
      if (now.find(key) == nullptr) compare(path + "." + key, &value, nullptr);
  }

  const std::set<std::string>& harmless_;
  std::vector<std::string>& words_;
};

/// By its dotted path, or null.
const Tree* at(const Tree& tree, const std::string& path) {
  const Tree* found = &tree;
  for (size_t start = 0; found != nullptr && found->is_map() && start <= path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    found = found->find(path.substr(start, end - start));
    start = end + 1;
    if (start > path.size()) return found;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> changed_settings(const Tree& before, const Tree& now) {
  const auto in_both = [&](const char* path, const std::string& word) {
    const auto is = [&](const Tree* value) {
      return value == nullptr || value->is_null() || (value->is_scalar() && value->text() == word);
    };
    return is(at(before, path)) && is(at(now, path));
  };
  std::set<std::string> harmless{"data.validation", "data.prefetch", "train.validate_every", "train.on_divergence"};
  if (in_both("train.schedule", "constant")) harmless.insert({"train.epochs", "train.steps"});
  if (in_both("pipeline.device", "cpu")) harmless.insert("train.deterministic");
  std::vector<std::string> words;
  Comparison comparison(harmless, words);
  for (const char* path : {"network", "pipeline.device", "pipeline.micro_batches", "pipeline.threads", "data", "train"})
    comparison.compare(path, at(before, path), at(now, path));
  return words;
}

}  // namespace gpipe::app
