// `${...}` in a configuration: named values, and integer arithmetic on them. Nothing else is code.
//
//   ${L / 3}   ${min(a, b) - (c + 1) * 2}   block_${i}   ${name}
//
// Arithmetic knows + - * / %, parentheses, unary minus, min and max, on 64-bit integers; every step is checked. `${name}`
// alone is the value as it stands: a number, a word, true, or a list such as [2, 2]. `$${` is the text `${`. Pure
// functions; any thread.
#pragma once

#include "core/base/problems.h"
#include "core/base/scalar.h"
#include "core/base/tree.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gpipe::base {

/// Named values; a name that is not here is looked for in `outer`, which must outlive this.
class Names {
 public:
  explicit Names(const Names* outer = nullptr) : outer_(outer) {}
  void set(std::string name, Tree value) { own_.emplace_back(std::move(name), std::move(value)); }
  const Tree* find(const std::string& name) const;
  std::vector<std::string> known() const;

 private:
  const Names* outer_;
  std::vector<std::pair<std::string, Tree>> own_;
};

/// A letter or '_', then letters, digits and '_', up to 64; not `min` or `max`.
bool is_value_name(const std::string& text);

/// The integer that the text between `${` and `}` stands for. `/` must divide; `%` has the sign of its right side.
std::variant<int64_t, Refusal> evaluate(const std::string& expression, const Names& names);

/// The tree with every `${...}` in it replaced; keys stay. Values that were put in stand where they are used. Faults go to
/// `problems`, all of them, and nothing is returned then.
std::optional<Tree> substitute(const Tree& tree, const Names& names, const std::string& path, Problems& problems);

}  // namespace gpipe::base
