// README.md keeps its word: its commands parse, its configurations hold, its sweep ends in a table.
#include "app/catalog.h"
#include "app/cli.h"
#include "tests/app/run_program.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace gpipe::app {
namespace {

/// The fenced blocks of a kind: "sh", "yaml".
std::vector<std::string> blocks(const std::string& kind) {
  std::istringstream readme(test::content_of(test::source_dir() / "README.md"));
  std::vector<std::string> all;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (!inside && line == "```" + kind) {
      inside = true;
      all.emplace_back();
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      all.back() += line + "\n";
    }
  }
  return all;
}

/// The command lines of all shell blocks, a continued line as one, the comment at the end left out.
std::vector<std::string> command_lines() {
  std::vector<std::string> all;
  for (std::string block : blocks("sh")) {
    if (block.starts_with("#!")) continue;  // a script
    for (size_t at = block.find("\\\n"); at != std::string::npos; at = block.find("\\\n")) block.replace(at, 2, " ");
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) all.push_back(line.substr(0, line.find(" #")));
  }
  return all;
}

/// As a shell splits it: blanks part words, single quotes hold them together.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  bool quoted = false;
  bool open = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (c != '\'') words.back() += c;
  }
  return words;
}

}  // namespace

TEST_CASE("README: every command line parses, and every file that it runs is there") {
  const Catalog catalog = make_catalog();
  size_t parsed = 0;
  for (const std::string& line : command_lines()) {
    CAPTURE(line);
    std::vector<std::string> words = words_of(line);
    REQUIRE(words.size() >= 2);
    if (words[0] == "bash") CHECK(std::filesystem::is_regular_file(test::source_dir() / words[1]));
    const bool runs = words[0] == "bash" && words[1] == "app/run.sh";
    if (words[0] != "gpipe-train" && !runs) continue;
    words.erase(words.begin(), words.begin() + (runs ? 2 : 1));
    CHECK_NOTHROW(parse_command_line(words, catalog));
    ++parsed;
  }
  CHECK(parsed >= 10);
}

TEST_CASE("README: its configuration and its examples of a network and of a transfer hold") {
  const test::TempFolder folder;
  const std::vector<std::string> examples = blocks("yaml");
  REQUIRE(examples.size() == 3);
  std::filesystem::create_symlink(test::source_dir() / "data", folder / "data");
  test::write_file(folder / "all.yaml", examples[0]);
  const test::Outcome all = test::run_program(folder, "check all.yaml");
  CAPTURE(all.err);
  CHECK(all.code == 0);
  test::write_file(folder / "network.yaml", examples[1] + examples[0].substr(examples[0].find("\npipeline:")));
  const test::Outcome network = test::run_program(folder, "check network.yaml");
  CAPTURE(network.err);
  CHECK(network.code == 0);
  const size_t pipeline = examples[0].find("\npipeline:"), train = examples[0].find("\ntrain:");
  test::write_file(folder / "transfer.yaml", examples[1] + examples[0].substr(pipeline, train - pipeline) + "\n" + examples[2] +
                                                 "  batch_size: 64\n  epochs: 1\n");
  const test::Outcome transfer = test::run_program(folder, "check transfer.yaml");
  CAPTURE(transfer.err);
  CHECK(transfer.code == 0);
}

TEST_CASE("README: the sweep is the script, and ends in a table with a row for each run") {
  const std::string script = test::content_of(test::source_dir() / "configs/sweeps/learning_rate.sh");
  const std::vector<std::string> shown = blocks("sh");
  CHECK(std::find(shown.begin(), shown.end(), script) != shown.end());
  const test::TempFolder folder;
  const std::string line = fmt::format(
      "cd '{}' && GPIPE_TRAIN='{}' bash configs/sweeps/learning_rate.sh configs/digits.yaml '{}' --set train.epochs=0 "
      "--set train.steps=2 --set train.warmup_steps=0 > '{}' 2>&1",
      test::source_dir().string(), test::program().string(), (folder / "sweep").string(), (folder / "table").string());
  REQUIRE(std::system(line.c_str()) == 0);
  const std::string table = test::content_of(folder / "table");
  CAPTURE(table);
  for (const char* rate : {" 0.01  finished", " 0.03  finished", " 0.1  finished", " 0.3  finished"})
    CHECK(table.find(rate) != std::string::npos);
  CHECK(std::count(table.begin(), table.end(), '\n') == 5);
}

}  // namespace gpipe::app
