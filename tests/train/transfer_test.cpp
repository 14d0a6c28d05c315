// Starting from saved weights, frozen parts, learning rates of their own: whole runs on a small network.
#include "core/train/transfer.h"

#include "app/yaml_tree.h"
#include "core/train/parts.h"
#include "tests/support/paths.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

using namespace gpipe;
using train::InitFrom;

namespace {

const char* const k_network = R"(
- linear: {out_features: 3}
  name: stem
- tanh
- linear: {out_features: 2}
  name: head
)";

struct Engined {
  explicit Engined(const std::vector<train::Part>& parts = {}) : network(test::network_of(k_network, {2}, 2)) {
    base::Problems problems;
    train::freeze_parts(network, parts, problems);
    problems.throw_if_any();
    plan = pipeline::make_plan(network, {{}, 8, 0, {}});
    engine = std::make_unique<pipeline::Engine>(*plan);
  }
  std::vector<float> values(const std::string& name) const {
    for (const pipeline::StateTensor* tensor : engine->tensors())
      if (tensor->name == name) return {tensor->value.f32(), tensor->value.f32() + tensor->value.elements()};
    return {};
  }
  graph::Network network;
  std::unique_ptr<pipeline::Plan> plan;
  std::unique_ptr<pipeline::Engine> engine;
};

train::NamedTensor stored(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {name, std::move(shape), train::StoredType::f32, std::as_bytes(std::span(values))};
}

std::string write_file(const test::TempFolder& folder, const std::vector<train::NamedTensor>& tensors) {
  const auto image = train::make_safetensors("model.safetensors", tensors, {});
  const std::string path = folder.path().string() + "/model.safetensors";
  std::ofstream out(path, std::ios::binary);
  for (const auto part : image.parts())
    out.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  return path;
}

std::string refusal(const InitFrom& from) {
  const graph::Network network = test::network_of(k_network, {2}, 2);
  try {
    const train::Transfer transfer(from, network);
  } catch (const base::CheckpointError& error) { return error.what(); }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<train::Part> parts_of(const std::string& yaml) {
  base::Problems problems;
  auto parts = train::read_parts(app::parse_yaml(yaml, "parts"), "train.parts", problems);
  problems.throw_if_any();
  return parts;
}

const std::vector<float> k_stem{1, 2, 3, 4, 5, 6}, k_bias{7, 8, 9}, k_head{1, -1, 2, -2, 3, -3}, k_head_bias{0.5F, 0.25F};

}  // namespace

TEST_CASE("patterns match whole names, with * for any letters") {
  CHECK(train::matches("stem.*", "stem.weight"));
  CHECK(!train::matches("stem.*", "system.weight"));
  CHECK(train::matches("*.bias", "a.b.bias"));
  CHECK(train::matches("a*b*c", "a.b.b.c"));
  CHECK(!train::matches("a*b", "a.b.c"));
  CHECK(!train::matches("", "a"));
  CHECK(train::matches("**", ""));
}

TEST_CASE("weights of a file come in under their names here; fresh ones stay as the seed has them") {
  const test::TempFolder folder;
  const std::string path =
      write_file(folder, {stored("module.stem.weight", {3, 2}, k_stem), stored("module.stem.bias", {3}, k_bias),
                          stored("module.fc.weight", {9, 3}, std::vector<float>(27, 1.0F))});
  Engined run;
  for (pipeline::StateTensor* t : run.engine->tensors()) std::fill_n(t->value.f32(), t->value.elements(), 0.125F);
  const train::Transfer transfer({path, {{"module.fc", "other"}, {"module.", ""}}, {"head.*"}, false}, run.network);
  transfer.write(*run.engine);
  CHECK(run.values("stem.weight") == k_stem);
  CHECK(run.values("stem.bias") == k_bias);
  CHECK(run.values("head.weight") == std::vector<float>(6, 0.125F));
  CHECK(contains(transfer.summary(), "2 tensors of"));
  CHECK(contains(transfer.summary(), "fresh: head.weight, head.bias"));
  CHECK(contains(transfer.summary(), "1 of the file is not used"));
}

TEST_CASE("half precision is read exactly") {
  const std::vector<uint16_t> f16{0x3C00, 0xC000, 0x3555, 0x0001, 0x7BFF, 0x8000}, bf16{0x3F80, 0xC000, 0x3EAB};
  const test::TempFolder folder;
  const std::string path = write_file(folder, {{"stem.weight", {3, 2}, train::StoredType::f16, std::as_bytes(std::span(f16))},
                                               {"stem.bias", {3}, train::StoredType::bf16, std::as_bytes(std::span(bf16))}});
  Engined run;
  train::Transfer({path, {}, {"head.*"}, false}, run.network).write(*run.engine);
  CHECK(run.values("stem.weight") == std::vector<float>{1, -2, 0.333251953125F, 5.9604644775390625e-08F, 65504, 0});
  CHECK(run.values("stem.bias") == std::vector<float>{1, -2, 0.333984375F});
}

TEST_CASE("what does not fit is refused with what is left over there") {
  const test::TempFolder folder;
  const std::string path = write_file(folder, {stored("stem.weight", {2, 3}, k_stem), stored("stem.bias", {3}, k_bias),
                                               stored("fc.weight", {2, 3}, k_head), stored("fc.bias", {2}, k_head_bias)});
  const std::string message = refusal({path, {}, {}, false});
  CHECK(contains(message, "stem.weight [3, 2] (there: F32 [2, 3])"));
  CHECK(contains(message, "head.weight [2, 3]"));
  CHECK(contains(message, "left over there: fc.bias, fc.weight, stem.weight"));
  CHECK(contains(refusal({path, {{"fc.", "stem."}}, {}, false}), "are both"));
  CHECK(contains(refusal({folder.path().string() + "/none", {}, {}, false}), "none"));
  CHECK(contains(refusal({path, {}, {}, true}), "wants a checkpoint folder"));
}

TEST_CASE("frozen parameters keep their values, and no gradient is computed before the first that learns") {
  Engined run(parts_of("[{match: 'stem.*', frozen: true}]"));
  CHECK(!run.network.values[static_cast<size_t>(run.network.nodes[1].output)].wants_gradient);
  CHECK(run.network.values[static_cast<size_t>(run.network.prediction)].wants_gradient);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0}", "optimizer"), "optimizer", problems);
  test::initialise(*run.engine, *optimizer, 3);
  const auto stem = run.values("stem.weight"), head = run.values("head.weight");
  test::SmallRun made{.network = "", .input = {2}, .classes = 2};
  test::MadeBatch batch(made, 0);
  const std::vector<device::Update> rules(run.engine->parameter_count(), optimizer->rule(0, 0.5, true));
  run.engine->train(batch.view(1), rules, 1.0);
  CHECK(run.values("stem.weight") == stem);
  CHECK(run.values("head.weight") != head);
}

TEST_CASE("parts that match nothing, or freeze all, are refused") {
  const auto refused = [](const std::string& yaml) -> std::string {
    graph::Network network = test::network_of(k_network, {2}, 2);
    base::Problems problems;
    const auto parts = train::read_parts(app::parse_yaml(yaml, "parts"), "train.parts", problems);
    if (problems.empty()) train::freeze_parts(network, parts, problems);
    return problems.empty() ? "" : problems.errors().front();
  };
  CHECK(contains(refused("[{match: stem.wait, frozen: true}]"), "did you mean stem.weight?"));
  CHECK(contains(refused("[{match: '*', frozen: true}]"), "nothing to train"));
  CHECK(contains(refused("{match: '*'}"), "wanted a list"));
  CHECK(contains(refused("[{match: 'stem.*', learningrate: 1}]"), "learning_rate"));
  CHECK(refused("[{match: '*', frozen: true}, {match: 'head.*', learning_rate: 10}]").empty());
}
