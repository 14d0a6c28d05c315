// Checkpoints: exact, whole or absent, and believed only when every byte is as it was written.
#include "core/train/checkpoint.h"

#include "core/train/manifest.h"
#include "tests/support/fault_files.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace gpipe;
using train::Checkpoint;
using train::NamedTensor;
using train::StoredType;

namespace {

namespace fs = std::filesystem;

/// Something to save: two tensors, a slot, a state.
struct Model {
  explicit Model(float first) : weight{first, 2, 3, 4, 5, 6}, slot{first, 8, 9, 10, 11, 12} {}
  std::vector<float> weight, slot;
  std::vector<int64_t> count{7};

  train::CheckpointContents contents(int64_t step, const std::string& run = "run-a") const {
    train::CheckpointContents all;
    all.run = run;
    all.step = step;
    all.model = {{"fc.weight", {2, 3}, StoredType::f32, std::as_bytes(std::span(weight))},
                 {"bn.count", {}, StoredType::i64, std::as_bytes(std::span(count))}};
    all.optimizer = {{"fc.weight.momentum", {2, 3}, StoredType::f32, std::as_bytes(std::span(slot))}};
    all.state = {{"step", step}, {"epoch", 1}, {"best", 0.5}};
    return all;
  }
};

std::string save(const fs::path& root, int64_t step, float first = 1, train::SavePolicy policy = {}) {
  return train::save_checkpoint(base::real_files(), root.string(), Model(first).contents(step), policy).folder;
}

std::vector<float> floats(const NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

float first_weight(const Checkpoint& checkpoint) {
  for (const NamedTensor& tensor : checkpoint.model()) {
    if (tensor.name == "fc.weight") return floats(tensor)[0];
  }
  return NAN;
}

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// What load_checkpoint (or find_newest) says; a failed check when it does not refuse.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const base::CheckpointError& error) { return error.what(); }
  return "";
}
std::string load_refusal(const std::string& folder) {
  return refusal([&] { train::load_checkpoint(folder); });
}
void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, "wanted \"" << part << "\" in: " << text);
}

}  // namespace

TEST_CASE("a checkpoint comes back as it was saved") {
  const test::TempFolder root;
  const std::string folder = save(root.path() / "a/b", 12);
  CHECK(fs::path(folder).filename() == "step-00000012");
  const Checkpoint back = train::load_checkpoint(folder);
  CHECK(back.step == 12);
  CHECK(back.run == "run-a");
  CHECK(back.state["best"] == 0.5);
  REQUIRE(back.model().size() == 2);
  CHECK(first_weight(back) == 1.0F);
  CHECK(floats(back.optimizer()[0]) == Model(1).slot);
  CHECK(back.warnings.empty());
}

TEST_CASE("a checkpoint in shards is the same checkpoint") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 3, 1, {.shard_bytes = 10});
  CHECK(fs::exists(folder + "/model.safetensors.index.json"));
  CHECK(fs::exists(folder + "/model-00002-of-00002.safetensors"));
  CHECK(first_weight(train::load_checkpoint(folder)) == 1.0F);
}

TEST_CASE("files and folders are the owner's alone, whatever the umask") {
  const test::TempFolder root;
  for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
    const mode_t before = umask(mask);
    const std::string folder = save(root / (mask == 0 ? "open" : "shut"), 1);
    umask(before);
    struct stat found {};
    REQUIRE(stat((folder + "/model.safetensors").c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0600);
    REQUIRE(stat(folder.c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0700);
  }
}

TEST_CASE("old checkpoints go, the last N and the best stay") {
  const test::TempFolder root;
  for (int64_t step = 1; step <= 6; ++step) save(root.path(), step, 1, {.keep_last = 2, .best_step = 2});
  CHECK(train::checkpoint_steps(root.path().string()) == std::vector<int64_t>{2, 5, 6});
}

TEST_CASE("whatever call of a save fails, the old checkpoint loads, and a later save works") {
  int64_t calls = 0;
  {
    const test::TempFolder root;
    test::FaultFiles counting;
    train::save_checkpoint(counting, root.path().string(), Model(1).contents(1), {});
    train::save_checkpoint(counting, root.path().string(), Model(2).contents(2), {.keep_last = 1});
    calls = counting.calls();
  }
  REQUIRE(calls > 40);
  for (const bool forever : {false, true}) {
    for (int64_t n = 1; n <= calls; ++n) {
      const test::TempFolder root;
      save(root.path(), 1, 1);
      test::FaultFiles faulty(n, n % 2 == 0 ? ENOSPC : EIO);
      faulty.failing_forever = forever;
      bool failed = false;
      try {
        train::save_checkpoint(faulty, root.path().string(), Model(2).contents(2), {.keep_last = 1});
      } catch (const base::FileError&) { failed = true; }
      INFO("call " << n << " " << faulty.failed() << (forever ? " and all later" : ""));
      const train::Newest newest = train::find_newest(root.path().string());
      CHECK(newest.skipped.empty());
      const float found = first_weight(newest.checkpoint);
      CHECK((found == 2.0F || (failed && found == 1.0F)));
      if (failed && faulty.failed() != "sync" && faulty.failed() != "open_folder" && faulty.failed() != "close")
        CHECK(found == 1.0F);
      train::sweep_temporaries(base::real_files(), root.path().string());
      save(root.path(), 3, 3, {.keep_last = 1});
      CHECK(first_weight(train::find_newest(root.path().string()).checkpoint) == 3.0F);
      CHECK(train::sweep_temporaries(base::real_files(), root.path().string()) == 0);
    }
  }
}

TEST_CASE("short writes and interruptions on every call write the same bytes") {
  const test::TempFolder root;
  test::FaultFiles choppy;
  choppy.short_writes = true;
  const std::string a = train::save_checkpoint(choppy, (root / "a").string(), Model(1).contents(1), {}).folder;
  const std::string b = save(root / "b", 1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CHECK(slurp(fs::path(a) / name) == slurp(fs::path(b) / name));
  }
}

TEST_CASE("K1: a folder without manifest, no folder, an empty root") {
  const test::TempFolder root;
  fs::create_directory(root / "step-00000001");
  check_contains(load_refusal((root / "step-00000001").string()), "no manifest.json");
  check_contains(load_refusal((root / "nothing").string()), "no such checkpoint");
  check_contains(refusal([&] { train::find_newest((root / "nothing").string()); }), "there is no checkpoint in it");
}

TEST_CASE("K2: a manifest cut at any byte is refused") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 1);
  const std::string whole = slurp(folder + "/manifest.json");
  for (size_t length = 0; length < whole.size(); ++length) {
    CHECK_THROWS_AS(train::read_manifest(std::string_view(whole).substr(0, length), "manifest.json"), base::CheckpointError);
  }
  put(folder + "/manifest.json", "");
  check_contains(load_refusal(folder), "manifest.json");
}

TEST_CASE("K3: any flipped bit is found, in the manifest and in every file, with file and block named") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 1);
  const std::string manifest = slurp(folder + "/manifest.json");
  for (size_t bit = 0; bit < manifest.size() * 8; ++bit) {
    std::string bad = manifest;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    CHECK_THROWS_AS(train::read_manifest(bad, "manifest.json"), base::CheckpointError);
  }
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const fs::path path = fs::path(folder) / name;
    const std::string good = slurp(path);
    for (size_t bit = 0; bit < good.size() * 8; bit += 13) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      put(path, bad);
      const std::string said = load_refusal(folder);
      check_contains(said, name);
      check_contains(said, "block 0");
    }
    put(path, good);
  }
  CHECK(load_refusal(folder).empty());
}

TEST_CASE("E10: a file that the disk lost a part of, or added to, is refused with both sizes") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const fs::path path = fs::path(folder) / name;
    const std::string good = slurp(path);
    for (const std::string& bad : {std::string(), good.substr(0, good.size() - 1), good + "x", good + std::string(100000, 'x')}) {
      put(path, bad);
      check_contains(load_refusal(folder), name);
      check_contains(load_refusal(folder), std::to_string(good.size()));
    }
    put(path, good);
  }
}

TEST_CASE("damage in a large file names its block") {
  std::vector<std::byte> bytes(3 * train::manifest_block_bytes + 5);
  const train::FileDigest before = train::digest_of(bytes);
  REQUIRE(before.blocks.size() == 4);
  bytes[2 * train::manifest_block_bytes] = std::byte{1};
  const train::FileDigest after = train::digest_of(bytes);
  CHECK(after.blocks[1] == before.blocks[1]);
  CHECK(after.blocks[2] != before.blocks[2]);
  CHECK(after.blocks[3] == before.blocks[3]);
}

TEST_CASE("K5 and K6: swapped shards and files of another step or run are told") {
  const test::TempFolder root;
  const std::string one = save(root.path(), 1), two = save(root.path(), 2, 5);
  fs::copy_file(one + "/model.safetensors", two + "/model.safetensors", fs::copy_options::overwrite_existing);
  check_contains(load_refusal(two), "of run run-a, step 1, the manifest of run run-a, step 2");

  const std::string sharded = save(root / "s", 1, 1, {.shard_bytes = 10});
  const fs::path a = sharded + "/model-00001-of-00002.safetensors", b = sharded + "/model-00002-of-00002.safetensors";
  const std::string content = slurp(a);
  put(a, slurp(b));
  put(b, content);
  check_contains(load_refusal(sharded), "model-00001-of-00002.safetensors");
}

TEST_CASE("K14: links, second names, pipes and folders are no files of a checkpoint") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 1), model = folder + "/model.safetensors";
  fs::create_hard_link(model, root / "second");
  check_contains(load_refusal(folder), "2 names");
  fs::remove(root / "second");
  fs::rename(model, root / "moved");
  fs::create_symlink(root / "moved", model);
  check_contains(load_refusal(folder), "symbolic link");
  fs::remove(model);
  REQUIRE(mkfifo(model.c_str(), 0600) == 0);
  check_contains(load_refusal(folder), "a pipe");
  fs::remove(model);
  fs::create_directory(model);
  check_contains(load_refusal(folder), "a folder");
}

TEST_CASE("K15: a linked checkpoint is used when named, never found by itself") {
  const test::TempFolder root, elsewhere;
  const std::string real = save(elsewhere.path(), 9, 9);
  save(root.path(), 1);
  fs::create_directory_symlink(real, root / "step-00000009");
  CHECK(train::load_checkpoint((root / "step-00000009").string()).step == 9);
  CHECK(train::find_newest(root.path().string()).checkpoint.step == 1);
}

TEST_CASE("K17: the first difference between the checkpoint and the network is named") {
  const test::TempFolder root;
  const Checkpoint checkpoint = train::load_checkpoint(save(root.path(), 1));
  const auto said = [&](std::vector<train::ExpectedTensor> expected) {
    return refusal([&] { train::check_tensors(checkpoint.model(), expected, "model", "f"); });
  };
  CHECK(said({{"fc.weight", {2, 3}}, {"bn.count", {}, StoredType::i64}}).empty());
  check_contains(said({{"fc.weight", {3, 2}}, {"bn.count", {}, StoredType::i64}}), "fc.weight is F32 [2, 3] in the checkpoint");
  check_contains(said({{"conv.weight", {3, 2}}}), "conv.weight [3, 2] is not in the checkpoint");
  check_contains(said({{"fc.weight", {2, 3}}}), "the checkpoint has bn.count []");
  check_contains(said({{"fc.weight", {2, 3}, StoredType::f64}}), "wanted F64");
}

TEST_CASE("K18: weights that are not finite are named") {
  Model model(1);
  model.weight[4] = INFINITY;
  const auto contents = model.contents(1);
  check_contains(refusal([&] { train::check_finite(contents.model, "f"); }), "element 4 of tensor fc.weight is inf");
}

TEST_CASE("K20: other kinds of files are recognised") {
  const test::TempFolder root;
  const auto said = [&](const std::string& content) {
    put(root / "x", content);
    return load_refusal((root / "x").string());
  };
  check_contains(said("PK\x03\x04zip"), "zip archive");
  check_contains(said("\x80\x02}q\x01(X\x03"), "pickle");
  check_contains(said("\x89HDF\r\n\x1a\n"), "HDF5");
  check_contains(said(std::string("\x08\0\0\0\0\0\0\0{}      ", 16)), "weights only");
  check_contains(said("what"), "wanted a checkpoint folder");
}

TEST_CASE("K21: what an interrupted save left is passed over, and swept") {
  const test::TempFolder root;
  save(root.path(), 1);
  fs::create_directory(root / ".step-00000002.tmp-77-0");
  put(root / ".step-00000002.tmp-77-0/model.safetensors", "half");
  CHECK(train::find_newest(root.path().string()).checkpoint.step == 1);
  CHECK(train::sweep_temporaries(base::real_files(), root.path().string()) == 1);
  CHECK_FALSE(fs::exists(root / ".step-00000002.tmp-77-0"));
}

TEST_CASE("K23: the newest that verifies is taken, the others are listed; all bad is an error") {
  const test::TempFolder root;
  for (int64_t step = 1; step <= 3; ++step) save(root.path(), step, static_cast<float>(step), {.keep_last = 3});
  put(root / "step-00000003/state.json", "{}");
  const train::Newest newest = train::find_newest(root.path().string());
  CHECK(newest.checkpoint.step == 2);
  REQUIRE(newest.skipped.size() == 1);
  check_contains(newest.skipped[0], "step-00000003/state.json");
  fs::remove(root / "step-00000002/manifest.json");
  fs::remove(root / "step-00000001/model.safetensors");
  const std::string said = refusal([&] { train::find_newest(root.path().string()); });
  check_contains(said, "none of the 3 checkpoints");
  check_contains(said, "step-00000001/model.safetensors");
}

TEST_CASE("state.json alone is that of the newest checkpoint whose state verifies, whatever became of its weights") {
  const test::TempFolder root;
  CHECK(train::newest_state((root / "nothing").string()).empty());
  for (int64_t step = 1; step <= 3; ++step) save(root.path(), step, static_cast<float>(step), {.keep_last = 3});
  put(root / "step-00000003/state.json", "{}");
  fs::remove(root / "step-00000002/model.safetensors");
  CHECK(train::newest_state(root.path().string())["step"] == 2);
  check_contains(refusal([&] { train::load_state((root / "step-00000003").string()); }), "step-00000003/state.json");
  check_contains(refusal([&] { train::load_state((root / "step-00000004").string()); }), "there is no such checkpoint");
}

TEST_CASE("K26: a checkpoint that others may write comes with a warning") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 1);
  fs::permissions(folder + "/state.json", fs::perms::group_write, fs::perm_options::add);
  const Checkpoint checkpoint = train::load_checkpoint(folder);
  REQUIRE(checkpoint.warnings.size() == 1);
  check_contains(checkpoint.warnings[0], "state.json");
}

TEST_CASE("a skipped checkpoint is replaced when its step is saved again") {
  const test::TempFolder root;
  const std::string folder = save(root.path(), 2, 1);
  put(folder + "/state.json", "{}");
  save(root.path(), 2, 6);
  CHECK(first_weight(train::load_checkpoint(folder)) == 6.0F);
  CHECK(train::sweep_temporaries(base::real_files(), root.path().string()) == 0);
}
