#include "core/train/checkpoint.h"
#include "core/train/manifest.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

namespace gpipe::train {

namespace {

constexpr std::string_view prefix = "step-";
constexpr size_t fewest_digits = 8;

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix) || name.size() < prefix.size() + fewest_digits) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc{} || stop != end || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

/// Writes the files of one checkpoint into a folder and notes their digests.
class FolderWriter {
 public:
  FolderWriter(base::FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  void write(const std::string& name, std::span<const std::span<const std::byte>> parts) {
    base::write_new_file(files_, folder_ + "/" + name, parts);
    digests_[name] = digest_of(parts);
  }
  void write(const std::string& name, std::string_view text) {
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    write(name, std::span(&part, 1));
  }
  void write_set(const std::string& stem, std::span<const NamedTensor> tensors, const Metadata& metadata, uint64_t shard_bytes) {
    const SafetensorsSet set = make_sharded(stem, tensors, metadata, shard_bytes);
    for (const SafetensorsImage& image : set.files) write(image.name, image.parts());
    if (!set.index.empty()) write(stem + ".safetensors.index.json", set.index);
  }
  const std::map<std::string, FileDigest>& digests() const { return digests_; }

 private:
  base::FileSystem& files_;
  std::string folder_;
  std::map<std::string, FileDigest> digests_;
};

void write_folder(base::FileSystem& files, const std::string& folder, const CheckpointContents& contents,
                  const SavePolicy& policy) {
  FolderWriter writer(files, folder);
  const Metadata metadata{{"format", "pt"}, {"run", contents.run}, {"step", std::to_string(contents.step)}};
  writer.write_set("model", contents.model, metadata, policy.shard_bytes);
  if (!contents.average.empty()) writer.write_set("average", contents.average, metadata, policy.shard_bytes);
  writer.write_set("optimizer", contents.optimizer, metadata, policy.shard_bytes);
  writer.write("state.json", contents.state.dump(2) + "\n");
  const std::string manifest = write_manifest({contents.run, contents.step, writer.digests()});
  base::write_new_file(files, folder + "/manifest.json", manifest);
  base::sync_folder(files, folder);
}

/// Puts a folder out of sight first: a removal cut short must not leave half a checkpoint under a checkpoint's name.
void remove_checkpoint(base::FileSystem& files, const std::string& folder) {
  const std::string hidden = base::temporary_sibling(folder);
  base::rename(files, folder, hidden);
  base::remove_tree(files, hidden);
}

void prune(base::FileSystem& files, const std::string& root, int64_t saved_step, const SavePolicy& policy,
           std::vector<std::string>& warnings) {
  std::vector<int64_t> older = checkpoint_steps(root);
  std::erase_if(older, [&](int64_t step) { return step >= saved_step; });
  const auto keep = static_cast<size_t>(std::max<int64_t>(policy.keep_last, 1) - 1);
  if (older.size() <= keep) return;
  older.resize(older.size() - keep);
  for (const int64_t step : older) {
    if (step == policy.best_step) continue;
    const std::string folder = root + "/" + checkpoint_name(step);
    try {
      remove_checkpoint(files, folder);
    } catch (const base::FileError& error) { warnings.push_back(fmt::format("an old checkpoint stays: {}", error.what())); }
  }
}

}  // namespace

Saved save_checkpoint(base::FileSystem& files, const std::string& root, const CheckpointContents& contents,
                      const SavePolicy& policy) {
  base::make_folders(files, root);
  const std::string folder = root + "/" + checkpoint_name(contents.step);
  const std::string temporary = base::temporary_sibling(folder);
  std::string replaced;  // a checkpoint of the same step, for instance one that a resume had to skip
  try {
    base::make_folder(files, temporary);
    write_folder(files, temporary, contents, policy);
    if (base::kind_of(folder)) {
      const std::string aside = base::temporary_sibling(folder);
      base::rename(files, folder, aside);
      replaced = aside;
    }
    base::rename(files, temporary, folder);
  } catch (const base::FileError&) {
    if (!replaced.empty()) files.rename(replaced.c_str(), folder.c_str());
    try {
      if (base::kind_of(temporary)) base::remove_tree(files, temporary);
    } catch (const base::FileError&) {  // the next start sweeps it
    }
    throw;
  }
  base::sync_folder(files, root);
  Saved saved{folder, {}};
  if (!replaced.empty()) {
    try {
      base::remove_tree(files, replaced);
    } catch (const base::FileError& error) {
      saved.warnings.push_back(fmt::format("a replaced checkpoint stays: {}", error.what()));
    }
  }
  prune(files, root, contents.step, policy, saved.warnings);
  return saved;
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", prefix, step); }

std::vector<int64_t> checkpoint_steps(const std::string& root) {
  std::vector<int64_t> steps;
  if (!base::kind_of(root)) return steps;
  for (const base::Entry& entry : base::list_folder(root)) {
    const auto step = step_of(entry.name);
    if (step && entry.kind == base::Entry::Kind::folder) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

int64_t sweep_temporaries(base::FileSystem& files, const std::string& root) {
  int64_t count = 0;
  if (!base::kind_of(root)) return count;
  for (const base::Entry& entry : base::list_folder(root)) {
    if (!base::is_temporary_name(entry.name)) continue;
    base::remove_tree(files, root + "/" + entry.name);
    ++count;
  }
  return count;
}

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace gpipe::train
