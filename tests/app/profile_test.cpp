// profile.json: what is written is read back, and nothing else is; what it says of another run is refused by name.
#include "app/profile_file.h"
#include "core/base/error.h"
#include "tests/app/run_program.h"
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace gpipe::app {
namespace {

ProfileFile made_file() {
  ProfileFile file;
  file.device = "a device";
  file.library = "a library 1.0";
  file.program = "0.1";
  file.date = "2026-01-31T12:00:00Z";
  file.threads = 2;
  file.micro_batch = 16;
  file.nodes = {{"stem", "conv2d", "[8, 8, 4]", {"weight [4, 3, 3, 3]", "bias [4]"}}, {"loss", "cross_entropy", "[2]", {}}};
  file.algorithms = {{"a convolution", "1"}, {"another", "0"}};
  file.profile = {{1e-3, 2e-3, 3.25e-3, 1e-6, 2e-6, 4096, 1024}, {1e-9, 0, 0, 0, 0, 0, 128}};
  return file;
}

/// The made file as JSON with one change, read back.
ProfileFile read_with(const nlohmann::json& patch) {
  nlohmann::json json = to_json(made_file());
  json.merge_patch(patch);
  const test::TempFolder folder;
  test::write_file(folder / "p.json", json.dump());
  return read_profile_file((folder / "p.json").string());
}

std::string fault_of(const std::string& text) {
  const test::TempFolder folder;
  test::write_file(folder / "p.json", text);
  try {
    read_profile_file((folder / "p.json").string());
  } catch (const base::ConfigError& error) { return error.what(); }
  return "no fault";
}

/// The made file's second node, with one change.
nlohmann::json with_node(const nlohmann::json& patch) {
  nlohmann::json json = to_json(made_file());
  json["nodes"][1].merge_patch(patch);
  return {{"nodes", json["nodes"]}};
}

}  // namespace

TEST_CASE("a profile that is written and read back is the same to the last bit") {
  const ProfileFile back = read_with(nlohmann::json::object());
  CHECK(to_json(back) == to_json(made_file()));
  CHECK(back.profile[0].backward_weight == 3.25e-3);
  CHECK(back.profile[0].kept_bytes == 4096);
  CHECK(back.algorithms == made_file().algorithms);
  CHECK(read_with({{"algorithms", nullptr}}).algorithms.empty());  // merge_patch removes it
  CHECK_NOTHROW(check_same(back, made_file(), "p.json"));
}

TEST_CASE("a profile file that is no such thing is refused with what is wrong in it") {
  const auto refused = [](const nlohmann::json& patch, const char* words) {
    CHECK_THROWS_WITH_AS(read_with(patch), doctest::Contains(words), base::ConfigError);
  };
  refused({{"format", "gpipe-train profile 9"}}, "wanted \"gpipe-train profile 1\"");
  refused({{"device", nullptr}}, "\"device\" is missing");  // merge_patch removes it
  refused({{"device", 7}}, "number, wanted text");
  refused({{"threads", 0}}, "\"threads\" is 0");
  refused({{"threads", 1.5}}, "\"threads\" is 1.5");
  refused({{"micro_batch", 1ULL << 63U}}, "wanted a whole number");
  refused({{"dates", "x"}}, "did you mean \"date\"");
  refused({{"algorithms", {{"a convolution", 1}}}}, "wanted an object of texts");
  refused({{"algorithms", "1"}}, "wanted an object of texts");
  refused({{"nodes", 3}}, "wanted a list");
  refused({{"nodes", {1}}}, "node 1: wanted an object");
  refused(with_node({{"forward", -1}}), "node 2: \"forward\" is -1");
  refused(with_node({{"forward", "fast"}}), "node 2: \"forward\" is string");
  refused(with_node({{"pack", nullptr}}), "node 2: \"pack\" is missing");
  refused(with_node({{"kept_bytes", -4}}), "\"kept_bytes\" is -4");
  refused(with_node({{"kept_bytes", 1e30}}), "\"kept_bytes\" is 1e+30");
  refused(with_node({{"parameters", {1, 2}}}), "a list of texts");
  CHECK(fault_of("").find("not valid JSON") != std::string::npos);
  CHECK(fault_of("[]").find("wanted an object, found array") != std::string::npos);
  CHECK(fault_of("{\"format\": 1, \"format\": 2}").find("twice") != std::string::npos);
  CHECK(fault_of("{\"a\":" + std::string(1000, '[')).find("deeper") != std::string::npos);
  CHECK(fault_of("{\"a\": 1e999}").find("JSON") != std::string::npos);
  CHECK(fault_of("{\"a\": \"\xff\"}").find("JSON") != std::string::npos);
}

TEST_CASE("a profile of another network, micro-batch, threads or device is refused, naming the difference") {
  const auto refused = [](auto change, const char* words) {
    ProfileFile here = made_file();
    change(here);
    CHECK_THROWS_WITH_AS(check_same(made_file(), here, "p.json"), doctest::Contains(words), base::ConfigError);
  };
  refused([](ProfileFile& f) { f.nodes[0].name = "root"; }, "node 1 (root), its name is \"stem\" there and \"root\" here");
  refused([](ProfileFile& f) { f.nodes[1].type = "mse"; }, "node 2 (loss), its type is \"cross_entropy\" there and \"mse\" here");
  refused([](ProfileFile& f) { f.nodes[0].output = "[8, 8, 5]"; }, "its output is \"[8, 8, 4]\" there and \"[8, 8, 5]\" here");
  refused([](ProfileFile& f) { f.nodes[0].parameters.pop_back(); }, "bias [4]] there and [weight [4, 3, 3, 3]] here");
  refused([](ProfileFile& f) { f.nodes.pop_back(); }, "2 nodes there, 1 here");
  refused([](ProfileFile& f) { f.micro_batch = 8; }, "16 samples there, 8 here");
  refused([](ProfileFile& f) { f.threads = 1; }, "2 there, 1 here");
  refused([](ProfileFile& f) { f.device = "another"; }, "\"a device\" there, \"another\" here");
}

TEST_CASE("profile measures every node, and train and plan take its file") {
  const test::TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  const test::Outcome measured = test::run_program(folder, "profile run.yaml --output p.json --json");
  CAPTURE(measured.err);
  REQUIRE(measured.code == 0);
  const auto json = nlohmann::json::parse(measured.out);
  CHECK(json == nlohmann::json::parse(test::content_of(folder / "p.json")));
  double sum = 0;
  for (const auto& node : json["nodes"])
    for (const char* key : {"forward", "backward_input", "backward_weight", "pack", "update"}) {
      const double seconds = node[key].get<double>();
      CHECK(std::isfinite(seconds));
      CHECK(seconds >= 0);
      sum += seconds;
    }
  CHECK(sum > 0);
  CHECK(test::run_program(folder, "profile run.yaml --output p.json").code == 6);  // never over an old one
  CHECK(test::run_program(folder, "plan run.yaml --profile-from p.json").code == 0);
  const test::Outcome trained = test::run_program(folder, "train run.yaml --quiet --profile-from p.json");
  CAPTURE(trained.err);
  CHECK(trained.code == 0);
  const test::Outcome other = test::run_program(folder, "plan run.yaml --profile-from p.json --threads 2");
  CHECK(other.code == 2);
  CHECK(other.err.find("1 there, 2 here") != std::string::npos);
  CHECK(test::run_program(folder, "plan run.yaml --profile-from nowhere.json").code == 2);
  CHECK(test::run_program(folder, "plan run.yaml --profile --profile-from p.json").code == 2);
}

}  // namespace gpipe::app
