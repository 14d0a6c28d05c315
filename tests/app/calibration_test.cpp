// The cache of the device's speed: used where it is good, measured anew where it is not, never needed.
#include "app/calibration.h"

#include "tests/app/run_program.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <optional>

namespace gpipe::app {
namespace {

/// XDG_CACHE_HOME while this lives.
class CacheHome {
 public:
  explicit CacheHome(const std::string& path) {
    if (const char* old = std::getenv("XDG_CACHE_HOME")) old_ = old;
    setenv("XDG_CACHE_HOME", path.c_str(), 1);
  }
  CacheHome(const CacheHome&) = delete;
  CacheHome& operator=(const CacheHome&) = delete;
  ~CacheHome() {
    if (old_) {
      setenv("XDG_CACHE_HOME", old_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
  }

 private:
  std::optional<std::string> old_;
};

std::filesystem::path only_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) all.push_back(entry.path());
  REQUIRE(all.size() == 1);
  return all.front();
}

}  // namespace

TEST_CASE("the device's speed is measured once, kept in a private file, and read from there") {
  const test::TempFolder folder;
  const CacheHome home((folder / "cache").string());
  std::vector<std::string> notes;
  const auto measured = device_peaks("cpu", {.threads = 1}, notes);
  CHECK(measured.convolution_flops > 0);
  CHECK(measured.linear_flops > 0);
  CHECK(measured.memory_bytes > 0);
  CHECK(notes.empty());
  const auto path = only_file(folder / "cache/gpipe-train");
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms(077)) == std::filesystem::perms::none);
  // A number that no measurement gives shows that the file is what counts.
  auto json = nlohmann::json::parse(test::content_of(path));
  json["linear_flops"] = 12345.5;
  test::write_file(path, json.dump());
  CHECK(device_peaks("cpu", {.threads = 1}, notes).linear_flops == 12345.5);
  CHECK(notes.empty());

  const auto measured_anew = [&](const char* why) {
    notes.clear();
    CHECK(device_peaks("cpu", {.threads = 1}, notes).linear_flops != 12345.5);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find(why) != std::string::npos);
    notes.clear();
    json["linear_flops"] = 12345.5;
    CHECK(nlohmann::json::parse(test::content_of(path))["linear_flops"] != 12345.5);  // and the file is good again
  };
  json["of"]["threads"] = 7;
  test::write_file(path, json.dump());
  measured_anew("another device");
  test::write_file(path, "{\"linear_flops\": ");
  measured_anew("JSON");
  json["linear_flops"] = -1;
  test::write_file(path, json.dump());
  measured_anew("\"linear_flops\" is no positive number");
}

TEST_CASE("no cache folder, or one that cannot be written, is no fault") {
  const test::TempFolder folder;
  test::write_file(folder / "file", "not a folder");
  const CacheHome home((folder / "file").string());
  std::vector<std::string> notes;
  CHECK(device_peaks("cpu", {.threads = 1}, notes).memory_bytes > 0);
  CHECK(notes.empty());
}

}  // namespace gpipe::app
