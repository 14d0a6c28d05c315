// --set and the shortcuts: typed values at dotted paths, taken literally.
#include "app/overrides.h"

#include "app/yaml_tree.h"
#include "core/base/error.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpipe::app {
namespace {

using base::Tree;

const std::string file =
    "network:\n  - conv2d: {out_channels: 8}\n  - relu\ntrain:\n  seed: 1\n  optimizer: sgd\n  lengths: [1, 2]\n";

Tree with(const std::string& set) {
  Tree tree = parse_yaml(file, "run.yaml");
  apply(tree, parse_set(set));
  return tree;
}

std::string refusal(const std::string& set) {
  try {
    with(set);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a value is set at its path, in maps and in lists, and knows where it came from") {
  CHECK(*with("train.seed=7").find("train")->find("seed") == Tree::scalar("7"));
  CHECK(with("train.seed=7").find("train")->find("seed")->where().text() == "--set train.seed");
  CHECK(with("network.0.conv2d.out_channels=16").find("network")->items()[0].find("conv2d")->find("out_channels")->text() ==
        "16");
  CHECK(with("train.lengths.1=5").find("train")->find("lengths")->items()[1].text() == "5");
  CHECK(with("pipeline.partitions=2").find("pipeline")->find("partitions")->text() == "2");
  CHECK(with("train.optimizer.sgd.momentum=0.5").find("train")->find("optimizer")->find("sgd")->find("momentum")->text() ==
        "0.5");
}

TEST_CASE("a value is replaced whole: a new choice does not mix with the old one") {
  CHECK(*with("train.optimizer={adam: {beta1: 0.5}}").find("train")->find("optimizer") == parse_yaml("adam: {beta1: 0.5}", "x"));
  CHECK(with("network=[relu]").find("network")->items().size() == 1);
}

TEST_CASE("values are typed like plain YAML, quotes make text, brackets make lists and maps") {
  const auto value = [](const std::string& text) { return parse_set("a=" + text).value; };
  CHECK(value("3") == Tree::scalar("3"));
  CHECK(value("\"3\"") == Tree::scalar("3", true));
  CHECK(value("'3'") == Tree::scalar("3", true));
  CHECK(value("").is_null());
  CHECK(value("~").is_null());
  CHECK(value("null").is_null());
  CHECK(value("\"\"") == Tree::scalar("", true));
  CHECK(value("[1, a]") == Tree::list({Tree::scalar("1"), Tree::scalar("a")}));
  CHECK(value("{a: [1]}") == Tree::map({{"a", Tree::list({Tree::scalar("1")})}}));
  CHECK(value("b=c").text() == "b=c");
}

TEST_CASE("C23: characters that mean something to a shell or to YAML are taken literally") {
  for (const std::string text :
       {"$HOME", "`ls`", "a #b", "a: b", "x,y", "*a", "&a", "!a", "runs/{name}", "- a", "|", "a]", "%"}) {
    CAPTURE(text);
    const Override set = parse_set("output.folder=" + text);
    CHECK(set.value.is_scalar());
    CHECK(set.value.text() == text);
  }
}

TEST_CASE("a path or value that makes no sense is refused by name") {
  CHECK(contains(refusal("train.seed"), "KEY=VALUE"));
  CHECK(contains(refusal("=3"), "KEY=VALUE"));
  CHECK(contains(refusal("a..b=3"), "single dots"));
  CHECK(contains(refusal(".a=3"), "single dots"));
  CHECK(contains(refusal("a.=3"), "single dots"));
  CHECK(contains(refusal("network.2.relu=3"), "--set network.2.relu: network is a list of 2: wanted a place in it from 0 to 1"));
  CHECK(contains(refusal("network.-1=3"), "from 0 to 1, found \"-1\""));
  CHECK(contains(refusal("network.first=3"), "found \"first\""));
  CHECK(contains(refusal("train.seed.x=3"), "train.seed is 1: nothing stands below it"));
  CHECK(contains(refusal("train.optimizer.adam.beta1=0"), "train.optimizer is text \"sgd\""));
  CHECK(contains(refusal("a=[1, 2"), "--set a:"));
  CHECK(contains(refusal("a=[1] 2"), "--set a:"));
  CHECK(contains(refusal("a=\"x\": y"), "put the whole value in quotes"));
  CHECK(contains(refusal("a={x: !t 1}"), "tag"));
  CHECK(contains(refusal("a=\xFF"), "UTF-8"));
  CHECK(contains(refusal("a=x\x01"), "control character"));
}

TEST_CASE("a shortcut is the same as --set, with its own name in messages") {
  Tree tree = parse_yaml(file, "run.yaml");
  apply(tree, shortcut("--threads", "pipeline.threads", "3"));
  apply(tree, shortcut("--output", "output.folder", "010", /*as_text=*/true));
  CHECK(*tree.find("pipeline")->find("threads") == Tree::scalar("3"));
  CHECK(tree.find("pipeline")->find("threads")->where().text() == "--threads");
  CHECK(*tree.find("output")->find("folder") == Tree::scalar("010", true));
}

}  // namespace gpipe::app
