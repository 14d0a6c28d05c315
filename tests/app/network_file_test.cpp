// A network in a file of its own: parameters go in, everything else stays literal.
#include "app/run_config.h"
#include "core/base/error.h"
#include "tests/app/run_program.h"
#include "tests/app/samples.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

const std::string rest = "data: {train: synthetic}\ntrain: {steps: 1}\n";

struct Case {
  std::string network;  // the file
  std::string use;      // what stands under network: in the configuration
};

std::string load(const test::TempFolder& folder, const Case& c, RunConfig* config = nullptr) {
  test::write_file(folder / "configs/networks/net.yaml", c.network);
  test::write_file(folder / "configs/run.yaml", "network: " + c.use + "\n" + rest);
  try {
    RunConfig loaded = load_run_config(folder / "configs/run.yaml", {}, test::small_catalog());
    if (config != nullptr) *config = std::move(loaded);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("parameters of a network file have defaults, and the configuration may give them") {
  const test::TempFolder folder;
  const std::string net =
      "parameters: {width: 16, act: relu}\nnetwork:\n  - linear: {out_features: $width}\n"
      "  - linear: {out_features: $width * 4, name: \"$width\"}\n  - $act\n";
  RunConfig config;
  CHECK(load(folder, {net, "{file: networks/net.yaml, width: 32}"}, &config) == "");
  CHECK(config.network ==
        parse_yaml("- linear: {out_features: 32}\n- linear: {out_features: 128, name: \"$width\"}\n- relu\n", "x"));
  CHECK(load(folder, {net, "{file: networks/net.yaml, act: gelu}"}, &config) == "");
  CHECK(config.network ==
        parse_yaml("- linear: {out_features: 16}\n- linear: {out_features: 64, name: \"$width\"}\n- gelu\n", "x"));
}

TEST_CASE("a network file may be a plain list, and is found from the configuration's folder") {
  const test::TempFolder folder;
  RunConfig config;
  CHECK(load(folder, {"- relu\n", "{file: networks/net.yaml}"}, &config) == "");
  CHECK(config.network.items().size() == 1);
  CHECK(contains(config.network.items()[0].where().text(), "net.yaml:1:3"));
}

TEST_CASE("faults of a network file and its parameters are named with their place") {
  const test::TempFolder folder;
  const std::string net = "parameters: {width: 16, act: relu}\nnetwork:\n  - linear: {out_features: $width}\n";
  CHECK(contains(load(folder, {net, "{file: networks/net.yaml, widht: 3}"}), "run.yaml:1:36: network: "));
  CHECK(contains(load(folder, {net, "{file: networks/net.yaml, widht: 3}"}), "did you mean \"width\"?"));
  CHECK(contains(load(folder, {"- linear: {out_features: $width}\n", "{file: networks/net.yaml}"}), "net.yaml:1:26"));
  CHECK(contains(load(folder, {"parameters: {a: x}\nnetwork: [linear: {b: $a * 2}]\n", "{file: networks/net.yaml}"}), "integer"));
  CHECK(contains(load(folder, {"layers: []\n", "{file: networks/net.yaml}"}), "unknown key \"layers\""));
  CHECK(contains(load(folder, {"network: []\n", "{file: networks/net.yaml}"}), "found an empty list"));
  CHECK(contains(load(folder, {net, "{file: networks/other.yaml}"}), "run.yaml:1:17: network.file: "));
  CHECK(contains(load(folder, {net, "{file: 3}"}), "network.file: wanted text"));
  CHECK(contains(load(folder, {net, "{width: 3}"}), "wanted a list of layers, or a map with `file`"));
}

TEST_CASE("C23: outside a network file a dollar is a dollar") {
  const auto reading = test::read_with({"network=[{linear: {out_features: $width}}]"});
  CHECK(reading.problems.empty());
  CHECK(reading.config.network.items()[0].find("linear")->find("out_features")->text() == "$width");
}

}  // namespace gpipe::app
