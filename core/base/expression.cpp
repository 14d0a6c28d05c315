#include "core/base/expression.h"

#include "core/base/choice.h"
#include "core/base/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::base {
namespace {

constexpr size_t k_longest = 200;        // characters of one expression
constexpr int k_deepest = 32;            // parentheses and signs in each other
constexpr size_t k_longest_text = 4096;  // of a text that values were put into: texts that double must end somewhere
constexpr size_t k_largest_list = 1000;  // values in a list that is passed on: so must lists
constexpr const char* k_rounding = "`(a - a % b) / b` rounds down";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string unknown_name(const std::string& name, const Names& names) {
  const std::string near = nearest(name, names.known());
  return fmt::format("no value is named {}{}", shown(name), near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near));
}

/// Recursive descent; the first fault ends it.
class Parser {
 public:
  Parser(const std::string& text, const Names& names) : text_(text), names_(names) {}

  int64_t whole() {
    const int64_t value = sum();
    if (at_ < text_.size()) fail(fmt::format("an operator was wanted before {}", shown(text_.substr(at_, 10))));
    return value;
  }

 private:
  [[noreturn]] static void fail(std::string reason) { throw Refusal{std::move(reason)}; }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_blanks();
    return true;
  }
  void want(char c) {
    if (take(c)) return;
    fail(at_ < text_.size() ? fmt::format("'{}' was wanted before {}", c, shown(text_.substr(at_, 10)))
                            : fmt::format("'{}' is missing at the end", c));
  }

  int64_t sum() {
    int64_t left = product();
    for (;;) {
      const char sign = take('+') ? '+' : take('-') ? '-' : '\0';
      if (sign == '\0') return left;
      left = apply(left, sign, product());
    }
  }

  int64_t product() {
    int64_t left = signed_value();
    for (;;) {
      const char sign = take('*') ? '*' : take('/') ? '/' : take('%') ? '%' : '\0';
      if (sign == '\0') return left;
      left = apply(left, sign, signed_value());
    }
  }

  static int64_t apply(int64_t a, char sign, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    if ((sign == '/' || sign == '%') && b == 0) fail(fmt::format("{} {} 0: division by zero", a, sign));
    if (sign == '+') overflow = __builtin_add_overflow(a, b, &result);
    if (sign == '-') overflow = __builtin_sub_overflow(a, b, &result);
    if (sign == '*') overflow = __builtin_mul_overflow(a, b, &result);
    if (sign == '%' && b != -1) result = (a % b != 0 && (a < 0) != (b < 0)) ? a % b + b : a % b;
    if (sign == '/' && b == -1) overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    if (sign == '/' && b != -1) {
      if (a % b != 0) fail(fmt::format("{} / {} is no whole number; {}", a, b, k_rounding));
      result = a / b;
    }
    if (overflow) fail(fmt::format("{} {} {} does not fit into 64 bits", a, sign, b));
    return result;
  }

  int64_t signed_value() {
    const Depth depth(*this);
    return take('-') ? apply(0, '-', signed_value()) : primary();
  }

  int64_t primary() {
    skip_blanks();
    if (take('(')) {
      const int64_t value = sum();
      want(')');
      return value;
    }
    const size_t start = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string word = text_.substr(start, at_ - start);
    skip_blanks();
    if (word.empty())
      fail(at_ < text_.size() ? fmt::format("a number or a name was wanted before {}", shown(text_.substr(at_, 10)))
                              : std::string("a number or a name is missing at the end"));
    if (is_digit(word[0])) return number(word);
    if (word == "min" || word == "max") return extreme(word == "max");
    return named(word);
  }

  int64_t number(const std::string& word) const {
    // "1.5" and "1e3" would otherwise be told as a missing operator.
    if (at_ < text_.size() && text_[at_] == '.') fail(fmt::format("arithmetic takes whole numbers, found {}.", word));
    const auto value = parse_integer(word);
    if (const auto* refusal = std::get_if<Refusal>(&value)) fail(fmt::format("{}: {}", word, refusal->reason));
    return std::get<int64_t>(value);
  }

  int64_t extreme(bool largest) {
    want('(');
    int64_t value = sum();
    while (take(',')) value = largest ? std::max(value, sum()) : std::min(value, sum());
    want(')');
    return value;
  }

  int64_t named(const std::string& name) const {
    const Tree* value = names_.find(name);
    if (value == nullptr) fail(unknown_name(name, names_));
    const auto number = parse_integer(value->is_scalar() && !value->quoted() ? value->text() : "");
    if (!std::holds_alternative<int64_t>(number))
      fail(fmt::format("{} is {}: arithmetic takes integers (`${{{}}}` alone passes any value)", name, value->found(), name));
    return std::get<int64_t>(number);
  }

  struct Depth {
    explicit Depth(Parser& parser) : depth(parser.depth_) {
      if (++depth > k_deepest) fail(fmt::format("parentheses and signs stand more than {} deep in each other", k_deepest));
    }
    ~Depth() { --depth; }
    int& depth;
  };

  const std::string& text_;
  const Names& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

std::string without_blanks(const std::string& text) {
  const size_t start = text.find_first_not_of(' ');
  return start == std::string::npos ? "" : text.substr(start, text.find_last_not_of(' ') - start + 1);
}

size_t size_of(const Tree& tree) {
  size_t size = 1;
  for (const Tree& item : tree.items()) size += size_of(item);
  for (const auto& member : tree.members()) size += size_of(member.second);
  return size;
}

void place(Tree& tree, const Location& where) {
  tree.set_where(where);
  for (Tree& item : tree.items()) place(item, where);
  for (auto& member : tree.members()) place(member.second, where);
}

/// One `${...}` by itself: any value where it is a name, else an integer.
Tree value_of(const std::string& expression, const Names& names) {
  const std::string name = without_blanks(expression);
  if (is_value_name(name)) {
    const Tree* value = names.find(name);
    if (value == nullptr) throw Refusal{unknown_name(name, names)};
    if (size_of(*value) > k_largest_list) throw Refusal{fmt::format("{} holds more than {} values", name, k_largest_list)};
    return *value;
  }
  const auto number = evaluate(expression, names);
  if (const auto* refusal = std::get_if<Refusal>(&number)) throw *refusal;
  return Tree::scalar(fmt::format("{}", std::get<int64_t>(number)));
}

/// A text with values put in. Throws Refusal.
Tree scalar_with_values(const Tree& scalar, const Names& names) {
  const std::string& text = scalar.text();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t start = text.find('$', at);
    out += text.substr(at, start == std::string::npos ? start : start - at);
    if (start == std::string::npos) break;
    if (text.compare(start, 3, "$${") == 0) {
      out += "${";
      at = start + 3;
      continue;
    }
    if (text.compare(start, 2, "${") != 0) {
      out += '$';
      at = start + 1;
      continue;
    }
    const size_t end = text.find('}', start);
    if (end == std::string::npos) throw Refusal{"a `${` has no `}`; to mean the text itself, write `$${`"};
    const std::string expression = text.substr(start + 2, end - start - 2);
    Tree value;
    try {
      value = value_of(expression, names);
    } catch (Refusal& refusal) {
      throw Refusal{
          fmt::format("${{{}}}: {}", expression.size() > 60 ? expression.substr(0, 60) + "..." : expression, refusal.reason)};
    }
    if (start == 0 && end + 1 == text.size()) {
      place(value, scalar.where());
      return value;
    }
    if (!value.is_scalar())
      throw Refusal{fmt::format("${{{}}} is {}, which cannot stand in a text", expression, value.kind_words())};
    out += value.text();
    if (out.size() > k_longest_text) throw Refusal{fmt::format("the text becomes longer than {} bytes", k_longest_text)};
    at = end + 1;
  }
  return Tree::scalar(out, true, scalar.where());
}

bool has_values(const Tree& scalar) { return scalar.is_scalar() && scalar.text().find("${") != std::string::npos; }

void replace(Tree& tree, const Names& names, const std::string& path, Problems& problems) {
  if (has_values(tree)) {
    try {
      tree = scalar_with_values(tree, names);
    } catch (const Refusal& refusal) { problems.add(tree.where(), path, refusal.reason); }
    return;
  }
  for (size_t i = 0; i < tree.items().size(); ++i) replace(tree.items()[i], names, fmt::format("{}.{}", path, i), problems);
  for (auto& [key, value] : tree.members()) replace(value, names, detail::join_path(path, key), problems);
}

}  // namespace

const Tree* Names::find(const std::string& name) const {
  for (const Names* names = this; names != nullptr; names = names->outer_) {
    const auto found = std::find_if(names->own_.begin(), names->own_.end(), [&](const auto& own) { return own.first == name; });
    if (found != names->own_.end()) return &found->second;
  }
  return nullptr;
}

std::vector<std::string> Names::known() const {
  std::vector<std::string> all;
  for (const Names* names = this; names != nullptr; names = names->outer_)
    for (const auto& own : names->own_) all.push_back(own.first);
  return all;
}

bool is_value_name(const std::string& text) {
  constexpr size_t longest = 64;
  return !text.empty() && text.size() <= longest && is_letter(text[0]) && text != "min" && text != "max" &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

std::variant<int64_t, Refusal> evaluate(const std::string& expression, const Names& names) {
  if (expression.size() > k_longest) return Refusal{fmt::format("longer than {} characters", k_longest)};
  try {
    return Parser(expression, names).whole();
  } catch (Refusal& refusal) { return std::move(refusal); }
}

std::optional<Tree> substitute(const Tree& tree, const Names& names, const std::string& path, Problems& problems) {
  const size_t faults = problems.errors().size();
  Tree out = tree;
  replace(out, names, path, problems);
  if (problems.errors().size() != faults) return std::nullopt;
  return out;
}

}  // namespace gpipe::base
