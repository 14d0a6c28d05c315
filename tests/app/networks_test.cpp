// configs/networks: published sizes come out exactly, and every file trains, at reduced width.
#include "app/yaml_tree.h"
#include "tests/app/child.h"
#include "tests/app/run_program.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace gpipe::app {
namespace {

std::filesystem::path networks() { return test::source_dir() / "configs/networks"; }

nlohmann::json described(const std::string& network, const std::string& settings) {
  const test::TempFolder folder;
  const auto outcome =
      test::run_program(folder, fmt::format("describe '{}' --json {}", (networks() / (network + ".yaml")).string(), settings));
  REQUIRE_MESSAGE(outcome.code == 0, network << ": " << outcome.err);
  return nlohmann::json::parse(outcome.out);
}

/// Multiply-adds of convolutions and linear layers of a sample whose names begin so, in millions.
double multiply_adds(const nlohmann::json& network, const std::string& prefix) {
  double sum = 0;
  for (const auto& layer : network["layers"])
    if (layer["name"].get<std::string>().starts_with(prefix) && (layer["type"] == "conv2d" || layer["type"] == "linear"))
      sum += layer["forward_flops"].get<double>() / 2;
  return sum / 1e6;
}

/// How a file is made small enough for a test.
struct Small {
  std::string params;  // what stands in params: {...}
  std::string shape;   // of a synthetic sample, or "tokens"; empty: images with images as targets
};
const std::map<std::string, Small>& small_networks() {
  static const std::map<std::string, Small> all{
      {"amoebanet-b", {"L: 6, D: 16, classes: 4", "[32, 32, 3]"}},
      {"amoebanet-d", {"L: 6, D: 16, classes: 4", "[32, 32, 3]"}},
      {"amoebanet-d-small", {"L: 3, D: 8, classes: 4", "[16, 16, 3]"}},
      {"bert", {"layers: 2, width: 8, heads: 2, vocabulary: 11, positions: 12, classes: 11", "tokens"}},
      {"amoebanet-d-tf", {"L: 3, D: 16, classes: 3, auxiliary_size: 1", "[96, 96, 3]"}},
      {"cnn", {"classes: 4", "[16, 16, 3]"}},
      {"gpt2", {"layers: 2, width: 8, heads: 2, vocabulary: 11, positions: 12", "tokens"}},
      {"mlp", {"layers: 3, width: 16, classes: 4", "[8]"}},
      {"mlp-mixer", {"depth: 2, width: 8, tokens: 6, channels: 16, patch: 4, image: 16, classes: 4", "[16, 16, 3]"}},
      {"resnet18", {"width: 4, classes: 4", "[32, 32, 3]"}},
      {"resnet20", {"width: 4, classes: 4", "[16, 16, 3]"}},
      {"resnet34", {"width: 4, classes: 4", "[32, 32, 3]"}},
      {"resnet50", {"width: 4, classes: 4", "[32, 32, 3]"}},
      {"resnet101", {"width: 4, classes: 4", "[32, 32, 3]"}},
      {"transformer-l", {"L: 3, model: 8, ff: 16, heads: 2, vocabulary: 11", "tokens"}},
      {"transformer-nmt", {"L: 2, H: 16, A: 1, model: 8, vocabulary: 11, dropout: 0.1", "tokens"}},
      {"unet", {"B: 2, C: 4", ""}},
      {"vit", {"layers: 2, width: 8, heads: 2, patch: 4, image: 16, classes: 4", "[16, 16, 3]"}},
      {"vgg16", {"width: 4, hidden: 16, classes: 4", "[32, 32, 3]"}},
  };
  return all;
}

/// `data.train` of a network that is made so small.
std::string data_for(const Small& small) {
  if (small.shape.empty()) return "npy: {inputs: images.npy, labels: masks.npy, target: value}";
  if (small.shape == "tokens") return "synthetic: {samples: 16, tokens: 11, length: 9, seed: 1}";
  return fmt::format("synthetic: {{samples: 16, shape: {}, classes: 4, seed: 1}}", small.shape);
}

/// 16 images of 32x32 in NumPy's format, made up.
void write_images(const std::filesystem::path& path, int64_t channels) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': (16, 32, 32, {}), }}", channels);
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\x01' << '\0' << '\x76' << '\0' << header;
  for (int64_t i = 0; i < 16 * 32 * 32 * channels; ++i) {
    const auto value = static_cast<float>((i * 7919) % 1000) / 1000;
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

}  // namespace

TEST_CASE("networks have the published numbers of parameters") {
  struct Row {
    std::string network, settings;
    int64_t parameters;
  };
  for (const Row& row :
       {Row{"amoebanet-d", "--set L=18 --set D=208", 81505540}, Row{"amoebanet-d", "--set D=416", 319024120},
        Row{"amoebanet-d", "--set L=36 --set D=544", 1055832376}, Row{"amoebanet-d", "--set L=72 --set D=512", 1844858344},
        Row{"amoebanet-d", "--set L=18 --set D=256", 122470120}, Row{"unet", "", 232687328},
        Row{"unet", "--set B=6 --set C=72", 362157516}, Row{"unet", "--set B=11 --set C=128", 2213834176},
        Row{"resnet18", "", 11689512}, Row{"resnet34", "", 21797672}, Row{"resnet50", "", 25557032},
        Row{"resnet101", "", 44549160}, Row{"vgg16", "", 138357544}, Row{"transformer-l", "--set L=3", 282178816},
        Row{"transformer-l", "--set L=13", 785761536}, Row{"transformer-l", "--set L=103", 5318006016},
        Row{"transformer-l", "--set L=48", 48 * 50358272LL + 131104000}, Row{"gpt2", "", 124439808},
        Row{"gpt2", "--set layers=24 --set width=1024 --set heads=16", 354823168},
        // Those with a class token have its vector and a position more; BERT has two segments, and 9 classes of 769 here.
        Row{"vit", "", 86567656 - 2 * 768}, Row{"bert", "", 109482240 - (768 * 768 + 768) - 2 * 768 + 9 * 769}}) {
    CAPTURE(row.network + " " + row.settings);
    CHECK(described(row.network, row.settings)["parameters"] == row.parameters);
  }
}

TEST_CASE("a Transformer of 1,663 layers and 83.9 billion parameters is described in seconds and little memory") {
  const test::TempFolder folder;
  const std::string file = (networks() / "transformer-l.yaml").string();
  const auto outcome = test::run_child(folder, {"describe", file, "--json", "--set", "L=1663"}, [] {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer needs all the address space there is
    test::limit(RLIMIT_AS, rlim_t{1} << 30);
#endif
    test::limit(RLIMIT_CPU, 30);
  });
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto network = nlohmann::json::parse(outcome.out);
  CHECK(network["parameters"] == 83876910336);
  CHECK(network["layer_count"] == 1663 * 10 + 3);
}

TEST_CASE("T(L, H, A) of translation has the sizes that the GPipe paper gives: matrices, biases and norms") {
  struct Row {
    int64_t layers, hidden, heads;
    double published;  // parameters
  };
  for (const Row& row : {Row{6, 8192, 16, 0.4e9}, Row{12, 16384, 32, 1.3e9}, Row{24, 8192, 16, 1.3e9}, Row{32, 16384, 32, 3e9},
                         Row{64, 16384, 32, 6e9}}) {
    CAPTURE(row.layers);
    const int64_t model = 1024, width = 64 * row.heads, vocabulary = 64000;
    const int64_t attention = 4 * model * width + 3 * width + model, norm = 2 * model;
    const int64_t forward = 2 * model * row.hidden + row.hidden + model;
    const int64_t layer = attention + forward + 2 * norm + (2 * attention + forward + 3 * norm);
    const int64_t parameters =
        described("transformer-nmt", fmt::format("--set L={} --set H={} --set A={}", row.layers, row.hidden, row.heads))
            .at("parameters");
    CHECK(parameters == row.layers * layer + 2 * vocabulary * model + vocabulary + 2 * norm);
    CHECK(std::abs(static_cast<double>(parameters) / row.published - 1) < 0.05);
  }
}

TEST_CASE("AmoebaNet-B (18, 512) has the 557 million parameters that the GPipe paper gives it") {
  const int64_t parameters = described("amoebanet-b", "--set D=512")["parameters"];
  CHECK(parameters / 1000000 == 557);
}

TEST_CASE("AmoebaNet-D (18, 256) has the known multiply-adds, cell by cell, and boundaries") {
  const auto network = described("amoebanet-d", "--set L=18 --set D=256");
  const auto near = [&](const std::string& prefix, double millions) {
    CAPTURE(prefix);
    CHECK(std::abs(multiply_adds(network, prefix) - millions) < 0.06);
  };
  near("stem.", 21.7);
  near("reduction_cell_1.", 420.7);
  near("reduction_cell_after_reduction_1.", 574.8);
  near("stage_1.normal_cell_after_reduction_1.", 526.6);
  near("stage_1.repeat_1.0.", 655.1);
  near("stage_1.repeat_1.4.", 706.5);
  near("reduction_cell_2.", 1037.2);
  near("last.normal_cell_after_reduction_1.", 552.3);
  near("last.repeat_1.0.", 655.1);
  near("linear_1", 4.1);
  CHECK(std::abs(multiply_adds(network, "") - 15170) < 5);
  CHECK(std::abs(multiply_adds(described("amoebanet-d", "--set D=208"), "") - 10020) < 5);
  CHECK(std::abs(multiply_adds(described("amoebanet-d", "--set L=72 --set D=512"), "") - 213200) < 50);
  std::map<std::string, int64_t> elements;
  for (const auto& layer : network["layers"]) {
    int64_t count = 1;
    for (const int64_t extent : layer["output"]) count *= extent;
    elements[layer["name"]] = count;
  }
  const int64_t stem = elements.at("stem.batch_norm_1"), a = elements.at("reduction_cell_1.y.concat_1");
  const int64_t b = elements.at("reduction_cell_after_reduction_1.y.concat_1");
  CHECK(stem == 802816);
  CHECK(stem + a == 2007040);
  CHECK(a + b == 1806336);
}

TEST_CASE("AmoebaNet-D is a file of at most 150 lines, Transformer-L of 40") {
  const auto lines_of = [](const std::string& name) {
    std::ifstream file(networks() / name);
    size_t lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  };
  CHECK(lines_of("amoebanet-d.yaml") > 50);
  CHECK(lines_of("amoebanet-d.yaml") <= 150);
  CHECK(lines_of("transformer-l.yaml") > 10);
  CHECK(lines_of("transformer-l.yaml") <= 40);
}

TEST_CASE("every network file trains, and a file of blocks alone is included by one that does") {
  const test::TempFolder folder;
  std::set<std::string> included, libraries, left;
  for (const auto& small : small_networks()) left.insert(small.first);
  write_images(folder / "images.npy", 3);
  write_images(folder / "masks.npy", 1);
  for (const auto& entry : std::filesystem::directory_iterator(networks())) {
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const base::Tree tree = read_yaml_file(entry.path().string());
    REQUIRE(tree.is_map());
    if (const base::Tree* include = tree.find("include")) included.insert(include->text());
    if (tree.find("layers") == nullptr && tree.find("file") == nullptr) {
      libraries.insert(entry.path().filename().string());
      continue;
    }
    left.erase(name);
    const auto small = small_networks().find(name);
    REQUIRE_MESSAGE(small != small_networks().end(), name << ".yaml needs a row in small_networks");
    test::write_file(folder / "run.yaml",
                     fmt::format("network: {{file: '{}', params: {{{}}}}}\npipeline: {{partitions: 3, micro_batches: 2, "
                                 "bind_threads: false}}\ndata: {{train: {{{}}}}}\ntrain: {{batch_size: 4, steps: 3, "
                                 "learning_rate: 0.01}}\ncheckpoint: {{every_epochs: 0, best: '', final_save: false}}\n"
                                 "output: {{folder: runs/{}}}\n",
                                 entry.path().string(), small->second.params, data_for(small->second), name));
    const auto outcome = test::run_program(folder, "train run.yaml --quiet --json");
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const auto result = nlohmann::json::parse(outcome.out);
    CHECK(result["steps"] == 3);
    CHECK(std::isfinite(result["loss"].get<double>()));
    // The run's own configuration holds the whole network.
    CHECK(test::run_program(folder, fmt::format("check runs/{}/config.yaml", name)).code == 0);
  }
  CHECK(left.empty());
  for (const std::string& library : libraries) CHECK_MESSAGE(included.contains(library), library);
}

}  // namespace gpipe::app
