// Runs the built program and keeps what it said.
#pragma once

#include "tests/support/paths.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace gpipe::test {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// `arguments` as a shell would read them, in `folder`.
inline Outcome run_program(const TempFolder& folder, const std::string& arguments) {
  const std::string line =
      "cd '" + folder.path().string() + "' && { '" + program().string() + "' " + arguments + "; } > .stdout 2> .stderr";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content_of(folder / ".stdout"), content_of(folder / ".stderr")};
}

}  // namespace gpipe::test
