// Where tests find things: the source tree, the program, and the shared folder beside the checkout (which may be absent).
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace gpipe::test {

inline std::filesystem::path source_dir() { return GPIPE_SOURCE_DIR; }
/// The program that tests start, or the one that the environment names.
inline std::filesystem::path program() {
  const char* other = std::getenv("GPIPE_TEST_PROGRAM");
  return other != nullptr ? other : GPIPE_PROGRAM;
}
/// What its stages run on where a test leaves it open.
inline std::string program_device() {
  const char* other = std::getenv("GPIPE_TEST_DEVICE");
  return other != nullptr ? other : "cpu";
}

/// ../shared/<below>, or nothing when it is not there; the caller then skips and says so.
inline std::optional<std::filesystem::path> shared(const std::string& below) {
  const auto path = source_dir().parent_path() / "shared" / below;
  if (std::filesystem::exists(path)) return path;
  MESSAGE("skipped: no " << path.string());
  return std::nullopt;
}

/// A fresh folder, removed with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gpipe-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace gpipe::test
