// Configuration trees written in place: tree({{"path", "x.csv"}, {"range", list({0, 8})}}).
#pragma once

#include "core/base/tree.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpipe::test {

inline base::Tree word(const std::string& text) { return base::Tree::scalar(text); }
inline base::Tree list(const std::vector<int64_t>& numbers) {
  std::vector<base::Tree> items;
  for (const int64_t number : numbers) items.push_back(word(std::to_string(number)));
  return base::Tree::list(std::move(items));
}
inline base::Tree words(const std::vector<std::string>& texts) {
  std::vector<base::Tree> items;
  for (const std::string& text : texts) items.push_back(word(text));
  return base::Tree::list(std::move(items));
}
inline base::Tree tree(std::vector<std::pair<std::string, base::Tree>> members) {
  base::Tree map = base::Tree::map();
  for (auto& [key, value] : members) map.set(key, std::move(value));
  return map;
}
/// A choice: {name: arguments}.
inline base::Tree choice(const std::string& name, base::Tree arguments) { return tree({{name, std::move(arguments)}}); }

}  // namespace gpipe::test
