#include "core/base/choice.h"

#include "core/base/scalar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace gpipe::base {
namespace {

/// Edit distance where swapping two neighbours counts once (optimal string alignment): most slips are one of these.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t longest = 64;  // nothing that we name is longer, and the cost is quadratic
  if (word.size() > longest) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::optional<Choice> read_choice(const Tree& tree, const std::string& path, const std::string& what,
                                  const std::vector<std::string>& known, Problems& problems) {
  Choice choice;
  if (tree.is_scalar()) {
    choice = {tree.text(), {}, tree.where()};
  } else if (tree.is_map() && tree.members().size() == 1) {
    const auto& [name, arguments] = tree.members().front();
    choice = {name, arguments, tree.key_where(name)};
    if (!arguments.is_null() && !arguments.is_map()) {
      problems.add(arguments.where(), path.empty() ? name : path + "." + name,
                   fmt::format("wanted a map with the settings of {}, found {}", name, arguments.found()));
      return std::nullopt;
    }
  } else {
    const std::string found = tree.is_map()    ? fmt::format("a map with {} keys", tree.members().size())
                              : tree.is_null() ? "no value"
                                               : tree.found();
    problems.add(tree.where(), path,
                 fmt::format("wanted one {}, as a word or as one key with its settings below it, found {}", what, found));
    return std::nullopt;
  }
  if (std::find(known.begin(), known.end(), choice.name) == known.end()) {
    const std::string near = nearest(choice.name, known);
    problems.add(choice.where, path,
                 fmt::format("unknown {} {}{} known: {}", what, shown(choice.name),
                             near.empty() ? ";" : fmt::format(", did you mean \"{}\"?", near), fmt::join(known, ", ")));
    return std::nullopt;
  }
  return choice;
}

}  // namespace gpipe::base
