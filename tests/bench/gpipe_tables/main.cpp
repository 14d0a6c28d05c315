// The tables of the GPipe paper (arXiv 1811.06965), here: beside its own figures, what this program counts, fits and reaches.
// gpipe_tables [sizes|speeds]... [--quick]; a few minutes, on an idle machine. Exit code 1: a count is not the paper's, or an
// arena is larger than its limit.
#include "tests/bench/gpipe_tables/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

using namespace gpipe;

int main(int argc, char** argv) {
  std::vector<std::string> wanted(argv + 1, argv + argc);
  const bool quick = std::erase(wanted, "--quick") > 0;
  const auto asked = [&](const char* name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  for (const std::string& word : wanted)
    if (word != "sizes" && word != "speeds") {
      fmt::print(stderr, "usage: gpipe_tables [sizes|speeds]... [--quick], found {}\n", word);
      return 2;
    }
  try {
    bool right = true;
    if (asked("sizes")) right = bench::print_sizes(quick);
    if (asked("speeds")) bench::print_speeds(quick);
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
