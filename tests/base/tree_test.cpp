// Trees, choices, places, and words that a user may have meant.
#include "core/base/tree.h"

#include "core/base/choice.h"
#include "core/base/problems.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpipe::base {
namespace {

Tree word(const std::string& text) { return Tree::scalar(text); }
Location at(const std::string& file, int line, int column) { return {std::make_shared<const std::string>(file), line, column}; }

}  // namespace

TEST_CASE("a place is file, line and column, or the flag that gave the value") {
  CHECK(at("a.yaml", 3, 5).text() == "a.yaml:3:5");
  CHECK(at("--set train.seed", 0, 0).text() == "--set train.seed");
  CHECK(Location{}.text() == "");
  Problems problems;
  problems.add(at("--set train.seed", 0, 0), "train.seed", "bad");
  problems.add(at("--threads", 0, 0), "pipeline.threads", "bad");
  problems.add({}, "", "bad");
  CHECK(problems.errors() == std::vector<std::string>{"--set train.seed: bad", "--threads: pipeline.threads: bad", "bad"});
}

TEST_CASE("an overlay merges maps and replaces everything else") {
  Tree base = Tree::map({{"a", Tree::map({{"x", word("1")}, {"y", word("2")}})}, {"b", Tree::list({word("1")})}});
  base.overlay(Tree::map({{"a", Tree::map({{"y", word("3")}, {"z", word("4")}})}, {"b", Tree::list({})}, {"c", word("5")}}));
  CHECK(base ==
        Tree::map(
            {{"a", Tree::map({{"x", word("1")}, {"y", word("3")}, {"z", word("4")}})}, {"b", Tree::list({})}, {"c", word("5")}}));
}

TEST_CASE("equal trees hold the same data: quotes count only where they change the type") {
  CHECK(Tree::scalar("relu", true) == Tree::scalar("relu", false));
  CHECK(!(Tree::scalar("1", true) == Tree::scalar("1", false)));
  CHECK(!(Tree::scalar("yes", true) == Tree::scalar("yes", false)));
  CHECK(!(Tree() == Tree::scalar("")));
}

TEST_CASE("a key keeps its own place") {
  Tree map = Tree::map({}, at("a.yaml", 1, 1));
  map.set("x", word("1"), at("a.yaml", 2, 3));
  CHECK(map.key_where("x").text() == "a.yaml:2:3");
  map.set("x", word("2"), at("--set x", 0, 0));
  CHECK(map.key_where("x").text() == "--set x");
  CHECK(map.key_where("y").text() == "a.yaml:1:1");
}

TEST_CASE("Y17: the nearest known word is the one that a slip was meant to be") {
  const std::vector<std::string> known{"momentum", "nesterov", "weight_decay", "relu", "gelu", "silu"};
  CHECK(nearest("momentun", known) == "momentum");
  CHECK(nearest("momemtum", known) == "momentum");
  CHECK(nearest("weihgt_decay", known) == "weight_decay");
  CHECK(nearest("reul", known) == "relu");
  CHECK(nearest("tanh", known) == "");
  CHECK(nearest("", known) == "");
  CHECK(nearest("x", {}) == "");
  CHECK(nearest(std::string(100'000, 'x'), known) == "");
}

TEST_CASE("C15: a choice is a word or one key with settings, and an unknown one lists the known") {
  const std::vector<std::string> known{"sgd", "adam"};
  Problems problems;
  const auto plain = read_choice(word("sgd"), "train.optimizer", "optimizer", known, problems);
  REQUIRE(plain);
  CHECK(plain->arguments.is_null());
  const auto with_settings =
      read_choice(Tree::map({{"adam", Tree::map({{"beta1", word("0.5")}})}}), "train.optimizer", "optimizer", known, problems);
  REQUIRE(with_settings);
  CHECK(with_settings->arguments.find("beta1")->text() == "0.5");
  CHECK(problems.empty());

  CHECK(!read_choice(word("sdg"), "train.optimizer", "optimizer", known, problems));
  CHECK(problems.errors().back() == "train.optimizer: unknown optimizer \"sdg\", did you mean \"sgd\"? known: sgd, adam");
  CHECK(!read_choice(word("lion"), "train.optimizer", "optimizer", known, problems));
  CHECK(problems.errors().back() == "train.optimizer: unknown optimizer \"lion\"; known: sgd, adam");
  CHECK(!read_choice(Tree::map({{"sgd", Tree()}, {"adam", Tree()}}), "", "optimizer", known, problems));
  CHECK(problems.errors().back().find("a map with 2 keys") != std::string::npos);
  CHECK(!read_choice(Tree::map({{"sgd", word("0.9")}}), "o", "optimizer", known, problems));
  CHECK(problems.errors().back().find("o.sgd: wanted a map") != std::string::npos);
  CHECK(!read_choice(Tree(), "o", "optimizer", known, problems));
  CHECK(!read_choice(Tree::list(), "o", "optimizer", known, problems));
}

}  // namespace gpipe::base
