// ${...}: what it computes, what passes as it stands, and what is refused.
#include "core/base/expression.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>

using namespace gpipe;
using base::Names;
using base::Tree;

namespace {

Names some_names() {
  Names names;
  names.set("L", Tree::scalar("18"));
  names.set("c", Tree::scalar("-7"));
  names.set("rate", Tree::scalar("0.1"));
  names.set("word", Tree::scalar("relu"));
  names.set("text", Tree::scalar("3", true));
  names.set("flag", Tree::scalar("true"));
  names.set("pair", Tree::list({Tree::scalar("2"), Tree::scalar("3")}));
  names.set("largest", Tree::scalar(fmt::format("{}", std::numeric_limits<int64_t>::max())));
  names.set("smallest", Tree::scalar(fmt::format("{}", std::numeric_limits<int64_t>::min())));
  return names;
}

int64_t value(const std::string& expression) {
  const Names names = some_names();
  const auto result = base::evaluate(expression, names);
  if (const auto* refusal = std::get_if<base::Refusal>(&result)) FAIL(expression << ": " << refusal->reason);
  return std::get<int64_t>(result);
}

std::string refusal(const std::string& expression) {
  const Names names = some_names();
  const auto result = base::evaluate(expression, names);
  const auto* refused = std::get_if<base::Refusal>(&result);
  return refused != nullptr ? refused->reason : fmt::format("gave {}", std::get<int64_t>(result));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Replaced {
  std::optional<Tree> tree;
  base::Problems problems;
};
Replaced replaced(const Tree& tree) {
  Replaced out;
  const Names names = some_names();
  out.tree = base::substitute(tree, names, "network", out.problems);
  return out;
}
Tree replaced(const std::string& text) {
  auto out = replaced(Tree::scalar(text));
  REQUIRE_MESSAGE(out.tree, text << ": " << (out.problems.empty() ? "" : out.problems.errors().front()));
  return *out.tree;
}
std::string fault(const std::string& text) {
  const auto out = replaced(Tree::scalar(text));
  return out.problems.empty() ? "no fault" : out.problems.errors().front();
}

}  // namespace

TEST_CASE("integer arithmetic has the usual precedence, left to right, with parentheses, min and max") {
  CHECK(value("1 + 2 * 3") == 7);
  CHECK(value("(1+2)*3") == 9);
  CHECK(value("20 - 5 - 3") == 12);
  CHECK(value("24 / 4 / 2") == 3);
  CHECK(value("7 % 4 * 2") == 6);
  CHECK(value("L / 3") == 6);
  CHECK(value("-L + 20") == 2);
  CHECK(value("--3") == 3);
  CHECK(value("2 * -3") == -6);
  CHECK(value("min(L, 4, 9) + max(1, c)") == 5);
  CHECK(value(" ( max( 2 , 3 ) ) ") == 3);
  CHECK(value("largest - 1 + 1") == std::numeric_limits<int64_t>::max());
}

TEST_CASE("the remainder has the sign of the divisor, so that (a - a % b) / b rounds down") {
  CHECK(value("7 % 3") == 1);
  CHECK(value("c % 3") == 2);
  CHECK(value("7 % -3") == -2);
  CHECK(value("(7 - 7 % 2) / 2") == 3);
  CHECK(value("(c - c % 2) / 2") == -4);
  CHECK(value("smallest % -1") == 0);
}

TEST_CASE("what has no exact 64-bit result is refused, with the numbers") {
  CHECK(has(refusal("7 / 2"), "7 / 2 is no whole number"));
  CHECK(has(refusal("7 / 2"), "(a - a % b) / b"));
  CHECK(has(refusal("L / (c + 7)"), "division by zero"));
  CHECK(has(refusal("L % 0"), "division by zero"));
  for (const char* large : {"largest + 1", "largest * 2", "smallest - 1", "smallest / -1", "-smallest", "9223372036854775808"}) {
    CAPTURE(large);
    CHECK_FALSE(has(refusal(large), "gave"));
  }
  CHECK(has(refusal("largest + 1"), "64 bits"));
}

TEST_CASE("what is no expression is refused: nothing else is code") {
  for (const char* bad :
       {"",    " ",    "1 +",    "* 2",    "(1",  "1)",    "1 2",     "L L", "min 1", "min()", "min(1,)", "1.5",    "010",
        "1e3", "f(1)", "L ** 2", "L // 2", "a.b", "L > 2", "L == 18", "'x'", "L; L",  "0x10",  "\t1",     "1 + + ", "${L}"}) {
    CAPTURE(bad);
    CHECK_FALSE(has(refusal(bad), "gave"));
  }
  CHECK(has(refusal("larges + 1"), "did you mean \"largest\""));
  CHECK(has(refusal("rate * 2"), "rate is 0.1: arithmetic takes integers"));
  CHECK(has(refusal("text + 1"), "text in quotes"));
  CHECK(has(refusal("pair + 1"), "a list"));
  CHECK(has(refusal("(1"), "')' is missing"));
  CHECK(has(refusal("1.5"), "whole numbers"));
}

TEST_CASE("length and depth are limited, and what is within the limits works") {
  const std::string deep(30, '(');
  CHECK(value(deep + "1" + std::string(30, ')')) == 1);
  CHECK(has(refusal(std::string(50, '(') + "1" + std::string(50, ')')), "deep"));
  CHECK(has(refusal(std::string(50, '-') + "1"), "deep"));
  CHECK(has(refusal("1" + std::string(200, ' ')), "longer"));
}

TEST_CASE("a name alone passes any value as it stands, with its type") {
  CHECK(replaced("${L}") == Tree::scalar("18"));
  CHECK(replaced("${rate}") == Tree::scalar("0.1"));
  CHECK(replaced("${ flag }") == Tree::scalar("true"));
  CHECK(replaced("${text}") == Tree::scalar("3", true));
  CHECK(replaced("${pair}") == Tree::list({Tree::scalar("2"), Tree::scalar("3")}));
  CHECK(replaced("${L * 2}") == Tree::scalar("36"));
}

TEST_CASE("inside a text values become text, and a dollar that opens nothing is a dollar") {
  CHECK(replaced("block_${L / 3}_${word}").text() == "block_6_relu");
  CHECK(replaced("1${L}") == Tree::scalar("118", true));
  CHECK(replaced("$L and $5").text() == "$L and $5");
  CHECK(replaced("a $${L} b ${L}").text() == "a ${L} b 18");
  CHECK(has(fault("x${pair}"), "cannot stand in a text"));
  CHECK(has(fault("x ${L"), "has no `}`"));
  CHECK(has(fault("${wrd}"), "${wrd}: no value is named \"wrd\", did you mean \"word\"?"));
}

TEST_CASE("all faults of a tree are reported, each with its own path and place") {
  const base::Location first{std::make_shared<const std::string>("net.yaml"), 3, 7}, second{first.file, 4, 9};
  Tree tree = Tree::map();
  tree.set("a", Tree::list({Tree::scalar("${L}"), Tree::scalar("${none}", false, first)}));
  tree.set("b", Tree::scalar("${7 / 2}", false, second));
  const auto out = replaced(tree);
  CHECK_FALSE(out.tree);
  REQUIRE(out.problems.errors().size() == 2);
  CHECK(has(out.problems.errors()[0], "net.yaml:3:7: network.a.1: "));
  CHECK(has(out.problems.errors()[1], "net.yaml:4:9: network.b: "));
}

TEST_CASE("a value that was put in stands where it is used") {
  const base::Location use{std::make_shared<const std::string>("net.yaml"), 5, 1};
  const auto out = replaced(Tree::list({Tree::scalar("${pair}", false, use)}));
  REQUIRE(out.tree);
  CHECK(out.tree->items()[0].items()[1].where().line == 5);
}

TEST_CASE("inner names come before outer ones") {
  const Names outer = some_names();
  Names inner(&outer);
  inner.set("L", Tree::scalar("1"));
  CHECK(std::get<int64_t>(base::evaluate("L - c", inner)) == 8);
  CHECK(std::get<int64_t>(base::evaluate("L", outer)) == 18);
}

TEST_CASE("texts and lists that double end somewhere") {
  Names names;
  names.set("a", Tree::scalar(std::string(3000, 'x')));
  std::vector<Tree> many(1000, Tree::scalar("1"));
  names.set("list", Tree::list(many));
  base::Problems problems;
  CHECK_FALSE(base::substitute(Tree::scalar("${a}${a}"), names, "", problems));
  CHECK_FALSE(base::substitute(Tree::scalar("${list}"), names, "", problems));
  CHECK(problems.errors().size() == 2);
}
