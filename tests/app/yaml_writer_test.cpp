// What the writer writes, the reader reads back as the same tree, whatever the texts look like.
#include "app/yaml_writer.h"

#include "app/yaml_tree.h"
#include "core/base/rng.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpipe::app {
namespace {

using base::Tree;

const std::vector<std::string>& awkward_texts() {
  static const std::vector<std::string> texts{
      "relu",
      "a b",
      "",
      " ",
      "~",
      "null",
      "true",
      "yes",
      "on",
      "y",
      "0",
      "-0",
      "1",
      "-7",
      "010",
      "0x10",
      "1e3",
      "1_000",
      "+5",
      ".5",
      ".inf",
      "12:30",
      "a: b",
      "a:b",
      "a #b",
      "#a",
      "- a",
      "-",
      "--",
      "---",
      "...",
      "?",
      "? a",
      ":",
      "[",
      "]",
      "{",
      "}",
      "[a]",
      "{a: b}",
      "a,b",
      ",",
      "*a",
      "&a",
      "!a",
      "|",
      ">",
      "%a",
      "@a",
      "`a`",
      "'",
      "\"",
      "it's",
      "a\"b",
      "a\\b",
      "\\n",
      "a\nb",
      "\n",
      "\ta",
      "a\t",
      " a",
      "a ",
      "a  b",
      "\x01",
      "\x7F",
      "\xC2\x85",
      "\xE2\x80\xA8x",
      "\xEF\xBB\xBF",
      "<<",
      "=",
      "caf\xC3\xA9",
      "\xF0\x9F\x98\x80",
      "runs/{name}",
      "$HOME",
      "a/b.c",
      "../x",
      "./x",
      "a=b",
      "x(1)",
      "1.2.3",
      "1a",
      "_",
      "/",
      "networks/a-b_c.yaml",
      std::string(300, 'x'),
      std::string(90, '['),
  };
  return texts;
}

/// A tree that is a pure function of the seed.
class RandomTree {
 public:
  explicit RandomTree(uint64_t seed) : numbers_(seed, base::Purpose::test) {}

  Tree operator()(int depth) {
    const uint32_t kind = below(depth > 4 ? 3 : 6);
    if (kind == 0) return {};
    if (kind <= 2) {
      // Plain scalars that are numbers or booleans keep their type, all else is text.
      static const std::vector<std::string> plain{"1", "-3", "0.5", "1e-07", "true", "false", "relu", "0x10", "off", "2.0"};
      return kind == 1 ? Tree::scalar(plain[below(static_cast<uint32_t>(plain.size()))]) : Tree::scalar(text(), true);
    }
    const uint32_t size = below(4);
    Tree tree = kind == 3 ? Tree::list() : Tree::map();
    for (uint32_t i = 0; i < size; ++i) {
      if (kind == 3) {
        tree.items().push_back((*this)(depth + 1));
      } else if (std::string key = text(); key.size() <= 200 && tree.find(key) == nullptr) {
        tree.set(key, (*this)(depth + 1));
      }
    }
    return tree;
  }

 private:
  uint32_t below(uint32_t bound) { return numbers_.below(next_++, bound); }
  std::string text() { return awkward_texts()[below(static_cast<uint32_t>(awkward_texts().size()))]; }

  base::Philox numbers_;
  uint64_t next_ = 0;
};

}  // namespace

TEST_CASE("any text survives as a value, as a key, in a list and in a map on one line") {
  for (const std::string& text : awkward_texts()) {
    CAPTURE(text);
    const Tree value = Tree::scalar(text, true);
    Tree map = Tree::map({{"k", value}, {"l", Tree::list({value, value})}, {"m", Tree::map({{"x", Tree::map({{"y", value}})}})}});
    if (text.size() <= 200) map.set(text, Tree::list({Tree::map({{text, value}})}));
    CAPTURE(write_yaml(map));
    // A row of 65 brackets is refused even inside quotes.
    if (text.find("[[[[") == std::string::npos) CHECK(parse_yaml(write_yaml(map), "x") == map);
  }
}

TEST_CASE("any tree survives") {
  for (uint64_t seed = 0; seed < 3'000; ++seed) {
    const Tree tree = RandomTree(seed)(0);
    const std::string text = write_yaml(tree);
    if (text.find("[[[[[[[[") != std::string::npos) continue;
    const Tree back = parse_yaml(text, "x");
    if (back == tree && write_yaml(back) == text) continue;
    CAPTURE(seed);
    CAPTURE(text);
    CHECK(back == tree);
    CHECK(write_yaml(back) == text);
  }
}

TEST_CASE("a configuration is written as a person would write it") {
  const std::string text =
      "network:\n"
      "  - conv2d: {out_channels: 8, kernel_size: [3, 3]}\n"
      "    name: stem\n"
      "  - relu\n"
      "  - residual:\n"
      "      body:\n"
      "        - linear: {out_features: 4}\n"
      "train:\n"
      "  epochs: 2\n"
      "  optimizer:\n"
      "    sgd: {momentum: 0.9}\n"
      "  folder: \"runs/{name}\"\n";
  CHECK(write_yaml(parse_yaml(text, "x")) == text);
}

}  // namespace gpipe::app
