// Files: whole writes under faults, exclusive names, order of the calls, regular files only.
#include "core/base/files.h"

#include "tests/support/fault_files.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

using namespace gpipe;
namespace fs = std::filesystem;

namespace {

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const base::FileError& error) { return error.what(); }
  return "";
}

void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, "wanted \"" << part << "\" in: " << text);
}

size_t names_in(const fs::path& folder) { return base::list_folder(folder.string()).size(); }

}  // namespace

TEST_CASE("E4 to E6: whatever call of atomic_write fails, the file is the old one or the new one, and nothing is left over") {
  test::FaultFiles counting;
  {
    const test::TempFolder folder;
    base::atomic_write(counting, (folder / "f").string(), "new");
  }
  for (const int error : {ENOSPC, EIO, EDQUOT, EROFS}) {
    for (int64_t n = 1; n <= counting.calls(); ++n) {
      const test::TempFolder folder;
      const std::string path = (folder / "f").string();
      base::atomic_write(base::real_files(), path, "old");
      test::FaultFiles faulty(n, error);
      const std::string said = refusal([&] { base::atomic_write(faulty, path, "new"); });
      INFO("call " << n << ": " << faulty.failed());
      CHECK_FALSE(said.empty());
      check_contains(said, folder.path().string());
      const std::string content = slurp(path);
      CHECK((content == "old" || content == "new"));
      CHECK(names_in(folder.path()) == 1);
    }
  }
}

TEST_CASE("a failed fsync is not tried again") {
  const test::TempFolder folder;
  test::FaultFiles counting, faulty(3, EIO);  // create, write, sync
  check_contains(refusal([&] { base::write_new_file(faulty, (folder / "f").string(), "x"); }), "fsync failed");
  CHECK(faulty.failed() == "sync");
  CHECK(faulty.calls() == 5);  // and then close and remove, no second sync
  CHECK(names_in(folder.path()) == 0);
}

TEST_CASE("E9: short writes and interruptions lose nothing") {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i);
  test::FaultFiles choppy;
  choppy.short_writes = true;
  base::atomic_write(choppy, (folder / "f").string(), text);
  CHECK(slurp(folder / "f") == text);
}

TEST_CASE("E3: a name that is taken, by a file or by a link, is never written through") {
  const test::TempFolder folder;
  base::write_new_file(base::real_files(), (folder / "f").string(), "mine");
  check_contains(refusal([&] { base::write_new_file(base::real_files(), (folder / "f").string(), "other"); }), "create failed");
  fs::create_symlink(folder / "f", folder / "link");
  check_contains(refusal([&] { base::write_new_file(base::real_files(), (folder / "link").string(), "other"); }),
                 "create failed");
  CHECK(slurp(folder / "f") == "mine");
}

TEST_CASE("E11: a file-size limit is an error, and what was begun is removed") {
  const test::TempFolder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string said =
      refusal([&] { base::write_new_file(base::real_files(), (folder / "f").string(), std::string(5000, 'x')); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old);
  check_contains(said, "write failed: File too large; the file-size limit is reached");
  CHECK(names_in(folder.path()) == 0);
}

TEST_CASE("folders are made with their parents; a file in the way is named") {
  const test::TempFolder folder;
  base::make_folders(base::real_files(), (folder / "a/b/c").string());
  base::make_folders(base::real_files(), (folder / "a/b/c").string());
  CHECK(fs::is_directory(folder / "a/b/c"));
  base::write_new_file(base::real_files(), (folder / "file").string(), "x");
  check_contains(refusal([&] { base::make_folders(base::real_files(), (folder / "file/b").string()); }),
                 "a part of the path is a file");
  check_contains(refusal([&] { base::make_folder(base::real_files(), (folder / "a").string()); }), "the name is taken");
}

TEST_CASE("a tree is removed with its links, and what they point to stays") {
  const test::TempFolder folder;
  base::make_folders(base::real_files(), (folder / "keep").string());
  base::write_new_file(base::real_files(), (folder / "keep/f").string(), "x");
  base::make_folders(base::real_files(), (folder / "go/deep").string());
  fs::create_directory_symlink(folder / "keep", folder / "go/link");
  base::remove_tree(base::real_files(), (folder / "go").string());
  CHECK(names_in(folder.path()) == 1);
  CHECK(slurp(folder / "keep/f") == "x");
}

TEST_CASE("only regular files are opened for reading; links and second names are refused where asked") {
  const test::TempFolder folder;
  const auto reason = [&](const std::string& name, base::Links links = base::Links::follow) {
    std::string text;
    const auto file = base::InputFile::open((folder / name).string(), text, links);
    return file ? std::string("opened") : text;
  };
  base::write_new_file(base::real_files(), (folder / "f").string(), "hello");
  fs::create_symlink(folder / "f", folder / "link");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(reason("f", base::Links::refuse) == "opened");
  CHECK(reason("link") == "opened");
  check_contains(reason("link", base::Links::refuse), "symbolic link");
  check_contains(reason("pipe"), "a pipe");
  check_contains(reason("."), "a folder");
  check_contains(reason("none"), "No such file");
  fs::create_hard_link(folder / "f", folder / "g");
  CHECK(reason("f") == "opened");
  check_contains(reason("f", base::Links::refuse), "2 names");

  std::string text;
  const auto file = base::InputFile::open((folder / "f").string(), text);
  std::vector<std::byte> bytes(10);
  CHECK(file->size() == 5);
  CHECK(file->read_at(2, bytes) == 3);
  CHECK(file->read_at(9, bytes) == 0);
}

TEST_CASE("parents and temporary names") {
  CHECK(base::parent_of("a/b/c") == "a/b");
  CHECK(base::parent_of("a/b/") == "a");
  CHECK(base::parent_of("a") == ".");
  CHECK(base::parent_of("/a") == "/");
  CHECK(base::parent_of("/") == "/");
  CHECK(base::parent_of("") == ".");
  const std::string one = base::temporary_sibling("x/y.json"), two = base::temporary_sibling("x/y.json");
  CHECK(one != two);
  CHECK(base::parent_of(one) == "x");
  CHECK(base::is_temporary_name(one.substr(2)));
  CHECK_FALSE(base::is_temporary_name("step-00000001"));
}

TEST_CASE("E3: a temporary name that is taken already is passed over") {
  const test::TempFolder folder;
  const std::string path = (folder / "f").string();
  const std::string name = base::temporary_sibling(path);
  const size_t dash = name.rfind('-');
  const std::string next = name.substr(0, dash + 1) + std::to_string(std::stoll(name.substr(dash + 1)) + 1);
  fs::create_symlink("/nowhere/else", next);
  base::atomic_write(base::real_files(), path, "x");
  CHECK(slurp(path) == "x");
  CHECK(fs::is_symlink(next));
}
