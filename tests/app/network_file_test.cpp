// Network definitions in files of their own: parameters go in, includes are merged, and the result stands alone.
#include "app/run_config.h"
#include "app/yaml_writer.h"
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
  std::vector<std::string> sets;
};

std::string load(const test::TempFolder& folder, const Case& c, RunConfig* config = nullptr) {
  if (!c.network.empty()) test::write_file(folder / "configs/networks/net.yaml", c.network);
  test::write_file(folder / "configs/run.yaml", "network: " + c.use + "\n" + rest);
  std::vector<Override> overrides;
  for (const std::string& set : c.sets) overrides.push_back(parse_set(set));
  try {
    RunConfig loaded = load_run_config(folder / "configs/run.yaml", overrides, test::small_catalog());
    if (config != nullptr) *config = std::move(loaded);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "";
}

std::string param(const RunConfig& config, const std::string& name) {
  const base::Tree* value = config.network.find("params")->find(name);
  return value == nullptr ? "none" : value->text();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string k_net = "params: {width: 16, act: relu}\nlayers:\n- linear: {out_features: ${width}}\n- ${act}\n";

}  // namespace

TEST_CASE("parameters of a network file have defaults, and the configuration and the command line may give them") {
  const test::TempFolder folder;
  RunConfig config;
  CHECK(load(folder, {k_net, "{file: networks/net.yaml}", {}}, &config) == "");
  CHECK(param(config, "width") == "16");
  CHECK(load(folder, {k_net, "{file: networks/net.yaml, params: {width: 32}}", {}}, &config) == "");
  CHECK(param(config, "width") == "32");
  CHECK(param(config, "act") == "relu");
  CHECK(load(folder, {k_net, "{file: networks/net.yaml, params: {width: 32}}", {"network.params.width=64"}}, &config) == "");
  CHECK(param(config, "width") == "64");
  CHECK(load(folder, {k_net, "{file: networks/net.yaml}", {"network.params.act=gelu"}}, &config) == "");
  CHECK(param(config, "act") == "gelu");
  CHECK(load(folder, {"", "{params: {a: 1}, layers: [relu]}", {"network.params.a=2"}}, &config) == "");
  CHECK(param(config, "a") == "2");
}

TEST_CASE("a network file may be a plain list, and is found from the configuration's folder") {
  const test::TempFolder folder;
  RunConfig config;
  CHECK(load(folder, {"- relu\n", "{file: networks/net.yaml}", {}}, &config) == "");
  CHECK(config.network.items().size() == 1);
  CHECK(contains(config.network.items()[0].where().text(), "net.yaml:1:3"));
}

TEST_CASE("includes bring blocks and parameters, each file from its own folder, and the merged definition stands alone") {
  const test::TempFolder folder;
  test::write_file(folder / "configs/networks/parts/base.yaml", "params: {k: 3}\nblocks: {unit: {layers: [relu]}}\n");
  test::write_file(folder / "configs/networks/parts/more.yaml",
                   "include: [base.yaml]\nblocks: {pair: {layers: [unit, unit]}}\nlayers: [pair]\n");
  RunConfig config;
  const std::string net = "include: [parts/more.yaml, parts/base.yaml]\nparams: {L: 2}\nlayers: [pair]\n";
  CHECK(load(folder, {net, "{file: networks/net.yaml}", {"network.params.k=5", "network.params.L=4"}}, &config) == "");
  CHECK(param(config, "k") == "5");
  CHECK(param(config, "L") == "4");
  CHECK(config.network.find("blocks")->members().size() == 2);
  CHECK(config.network.find("include") == nullptr);
  CHECK(config.network.find("layers")->items().size() == 1);
  // Written and read again, from another folder, it is the same.
  test::write_file(folder / "elsewhere/run.yaml", write_yaml(write_run_config(config)));
  const RunConfig again = load_run_config(folder / "elsewhere/run.yaml", {}, test::small_catalog());
  CHECK(again.network == config.network);
  CHECK(load(folder, {"", "{include: networks/parts/more.yaml, layers: [pair]}", {"network.params.k=7"}}, &config) == "");
  CHECK(param(config, "k") == "7");
}

TEST_CASE("a network file may take over another, with other parameters") {
  const test::TempFolder folder;
  test::write_file(folder / "configs/networks/base.yaml", k_net);
  RunConfig config;
  CHECK(load(folder, {"file: base.yaml\nparams: {width: 99}\n", "{file: networks/net.yaml, params: {act: tanh}}", {}}, &config) ==
        "");
  CHECK(param(config, "width") == "99");
  CHECK(param(config, "act") == "tanh");
}

TEST_CASE("faults of files, includes and parameters are named with their place") {
  const test::TempFolder folder;
  const auto fault = [&](const std::string& net, const std::string& use, std::vector<std::string> sets = {}) {
    return load(folder, {net, use, std::move(sets)});
  };
  const std::string file = "{file: networks/net.yaml}";
  CHECK(contains(fault(k_net, "{file: networks/net.yaml, params: {widht: 3}}"), "run.yaml:1:45: network.params: "));
  CHECK(contains(fault(k_net, "{file: networks/net.yaml, params: {widht: 3}}"), "did you mean \"width\"?"));
  CHECK(contains(fault(k_net, file, {"network.params.widht=3"}), "--set network.params.widht: "));
  CHECK(contains(fault("", "{params: {a: 1}, layers: [relu]}", {"network.params.b=3"}), "has no parameter \"b\""));
  CHECK(contains(fault("- relu\n", file, {"network.params.b=3"}), "has no parameter \"b\"; it has none"));
  CHECK(contains(fault(k_net, "{file: networks/net.yaml, width: 3}"), "\"width\" cannot stand beside `file`"));
  CHECK(contains(fault("network: [relu]\n", file), "unknown key \"network\""));
  CHECK(contains(fault("params: {a: 1}\n", file), "network.layers: missing value"));
  CHECK(contains(fault("layers: []\n", file), "found an empty list"));
  CHECK(contains(fault(k_net, "{file: networks/other.yaml}"), "run.yaml:1:17: network.file: "));
  CHECK(contains(fault(k_net, "{file: 3}"), "network.file: wanted text"));
  CHECK(contains(fault(k_net, "{width: 3}"), "unknown key \"width\""));
  CHECK(contains(fault(k_net, "3"), "wanted a list of layers, or a map with `layers` or `file`"));
  CHECK(contains(fault("file: net.yaml\n", file), "in a circle: "));
  CHECK(contains(fault("include: net.yaml\nlayers: [relu]\n", file), "in a circle: "));
}

TEST_CASE("a name that is defined twice is an error that names both places") {
  const test::TempFolder folder;
  test::write_file(folder / "configs/networks/a.yaml", "params: {k: 3}\nblocks: {unit: {layers: [relu]}}\n");
  test::write_file(folder / "configs/networks/b.yaml", "blocks:\n  unit: {layers: [tanh]}\n");
  const std::string twice = load(folder, {"include: [a.yaml, b.yaml]\nlayers: [unit]\n", "{file: networks/net.yaml}", {}});
  CHECK(contains(twice, "b.yaml:2:3: network.blocks: the block \"unit\" is defined already at "));
  CHECK(contains(twice, "a.yaml:2:10"));
  const std::string own = load(folder, {"include: a.yaml\nparams: {k: 4}\nlayers: [unit]\n", "{file: networks/net.yaml}", {}});
  CHECK(contains(own, "net.yaml:2:10: network.params: the parameter \"k\" is defined already at "));
  test::write_file(folder / "configs/networks/list.yaml", "- relu\n");
  CHECK(contains(load(folder, {"include: list.yaml\nlayers: [relu]\n", "{file: networks/net.yaml}", {}}), "is a plain list"));
}

}  // namespace gpipe::app
