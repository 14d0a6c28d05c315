#include "core/train/checkpoint.h"
#include "core/train/manifest.h"
#include "core/train/strict_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

namespace gpipe::train {

namespace {

using base::CheckpointError;

constexpr uint64_t text_cap = uint64_t{256} << 20;  // manifest, state, index: far above what any run writes
constexpr uint32_t others_may_write = 0022;

/// The files of one checkpoint; what it returns was verified as the bytes it is.
class FolderReader {
 public:
  FolderReader(std::string folder, std::vector<std::string>& warnings) : folder_(std::move(folder)), warnings_(warnings) {
    const auto bytes = read_file("manifest.json", text_cap);
    manifest_ = read_manifest(as_text(bytes), path_of("manifest.json"));
  }

  const Manifest& manifest() const { return manifest_; }

  std::vector<std::byte> verified(const std::string& name) {
    const auto row = manifest_.files.find(name);
    if (row == manifest_.files.end()) throw CheckpointError("{}: {} is not in the manifest", folder_, name);
    auto bytes = read_file(name, row->second.bytes);
    const FileDigest& wanted = row->second;
    if (bytes.size() != wanted.bytes) {
      throw CheckpointError("{}: {} bytes, the manifest says {}", path_of(name), bytes.size(), wanted.bytes);
    }
    const FileDigest found = digest_of(bytes);
    if (found == wanted) return bytes;
    const auto differ = std::mismatch(found.blocks.begin(), found.blocks.end(), wanted.blocks.begin(), wanted.blocks.end());
    const auto block = static_cast<uint64_t>(differ.first - found.blocks.begin());
    throw CheckpointError("{}: digest mismatch in block {} (bytes {} to {}){}", path_of(name), block,
                          block * manifest_block_bytes, std::min<uint64_t>((block + 1) * manifest_block_bytes, bytes.size()),
                          stranger(bytes));
  }

  bool has(const std::string& stem) const {
    return manifest_.files.count(stem + ".safetensors") + manifest_.files.count(stem + ".safetensors.index.json") > 0;
  }

  std::vector<Safetensors> tensors(const std::string& stem) {
    std::set<std::string> names;
    const std::string single = stem + ".safetensors", index = single + ".index.json";
    if (manifest_.files.count(single) != 0) {
      names.insert(single);
    } else if (manifest_.files.count(index) != 0) {
      const auto bytes = verified(index);
      const nlohmann::json whole = parse_strict_json(as_text(bytes), path_of(index));
      try {
        for (const auto& [tensor, file] : whole.at("weight_map").items()) names.insert(file.get<std::string>());
      } catch (const nlohmann::json::exception& error) { throw CheckpointError("{}: {}", path_of(index), error.what()); }
    } else {
      throw CheckpointError("{}: neither {} nor {} is in the manifest", folder_, single, index);
    }
    std::vector<Safetensors> all;
    for (const std::string& name : names) all.push_back(Safetensors::parse(verified(name), path_of(name)));
    return all;
  }

  static std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

 private:
  /// At most `cap` + 1 bytes, so that a file that grew shows and a wrong one costs no memory.
  std::vector<std::byte> read_file(const std::string& name, uint64_t cap) {
    std::string reason;
    const auto file = base::InputFile::open(path_of(name), reason, base::Links::refuse);
    if (!file) throw CheckpointError("{}: {}", path_of(name), reason);
    if ((file->mode() & others_may_write) != 0) {
      warnings_.push_back(fmt::format("{}: group or others may write it (mode {:o}); chmod go-w", path_of(name), file->mode()));
    }
    std::vector<std::byte> bytes(static_cast<size_t>(std::min(file->size(), cap + 1)));
    bytes.resize(file->read_at(0, bytes));
    if (file->size() > cap) { throw CheckpointError("{}: {} bytes, wanted {}", path_of(name), file->size(), cap); }
    return bytes;
  }

  /// Where the bytes are a sound file of another moment, that is the thing to say.
  std::string stranger(const std::vector<std::byte>& bytes) const {
    try {
      const Safetensors file = Safetensors::parse(bytes, "");
      const auto run = file.metadata().find("run"), step = file.metadata().find("step");
      if (run == file.metadata().end() || step == file.metadata().end()) return "";
      if (run->second == manifest_.run && step->second == std::to_string(manifest_.step)) return "";
      return fmt::format("; the file is of run {}, step {}, the manifest of run {}, step {}", run->second, step->second,
                         manifest_.run, manifest_.step);
    } catch (const base::Error&) { return ""; }
  }

  std::string folder_;
  std::vector<std::string>& warnings_;
  Manifest manifest_;
};

std::vector<NamedTensor> gather(const std::vector<Safetensors>& files) {
  std::vector<NamedTensor> all;
  for (const Safetensors& file : files) all.insert(all.end(), file.tensors().begin(), file.tensors().end());
  return all;
}

void check_unique(const std::vector<NamedTensor>& tensors, const std::string& folder) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) throw CheckpointError("{}: tensor {} stands in two files", folder, tensor.name);
  }
}

/// Somebody gave a file where a folder was wanted.
[[noreturn]] void refuse_file(const std::string& path) {
  std::string reason;
  const auto file = base::InputFile::open(path, reason);
  if (!file) throw CheckpointError("{}: {}; wanted a checkpoint folder", path, reason);
  std::vector<std::byte> first(16);
  first.resize(file->read_at(0, first));
  std::string kind = foreign_kind(first);
  if (kind.empty() && first.size() > 8 && first[8] == std::byte{'{'}) kind = "a safetensors file of weights only";
  if (kind.empty()) kind = "a file";
  throw CheckpointError("{}: this is {}; wanted a checkpoint folder (checkpoints/step-...), which holds the whole state", path,
                        kind);
}

template <class T>
std::string not_finite_as(const NamedTensor& tensor) {
  for (size_t i = 0; i * sizeof(T) < tensor.bytes.size(); ++i) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof value);
    if (!std::isfinite(value)) return fmt::format("element {} of tensor {} is {}", i, tensor.name, value);
  }
  return {};
}

/// After a look at what `folder` is.
FolderReader open_folder(const std::string& folder, std::vector<std::string>& warnings) {
  const auto kind = base::kind_of(folder + "/.");  // through a link, if it was named so
  if (!kind) {
    if (base::kind_of(folder) && base::kind_of(folder) != base::Entry::Kind::folder) refuse_file(folder);
    throw CheckpointError("{}: there is no such checkpoint", folder);
  }
  if (!base::kind_of(folder + "/manifest.json")) {
    throw CheckpointError(
        "{}: not a checkpoint: there is no manifest.json in it{}", folder,
        base::kind_of(folder + "/checkpoints") ? "; it is a run, whose checkpoints are in its folder checkpoints" : "");
  }
  return {folder, warnings};
}

nlohmann::json read_state(FolderReader& reader) {
  const auto bytes = reader.verified("state.json");
  return parse_strict_json(FolderReader::as_text(bytes), reader.path_of("state.json"));
}

}  // namespace

std::vector<NamedTensor> Checkpoint::model() const { return gather(model_files); }
std::vector<NamedTensor> Checkpoint::average() const { return gather(average_files); }
std::vector<NamedTensor> Checkpoint::optimizer() const { return gather(optimizer_files); }

Checkpoint load_checkpoint(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  FolderReader reader = open_folder(folder, checkpoint.warnings);
  checkpoint.run = reader.manifest().run;
  checkpoint.step = reader.manifest().step;
  checkpoint.model_files = reader.tensors("model");
  if (reader.has("average")) checkpoint.average_files = reader.tensors("average");
  checkpoint.optimizer_files = reader.tensors("optimizer");
  check_unique(checkpoint.model(), folder);
  check_unique(checkpoint.average(), folder);
  check_unique(checkpoint.optimizer(), folder);
  checkpoint.state = read_state(reader);
  return checkpoint;
}

nlohmann::json load_state(const std::string& folder) {
  std::vector<std::string> warnings;  // are told where the whole is loaded
  FolderReader reader = open_folder(folder, warnings);
  return read_state(reader);
}

nlohmann::json newest_state(const std::string& root) {
  std::vector<int64_t> steps = checkpoint_steps(root);
  std::reverse(steps.begin(), steps.end());
  for (const int64_t step : steps) {
    try {
      return load_state(root + "/" + checkpoint_name(step));
    } catch (const base::Error& error) {
      if (error.exit_code() != base::ExitCode::checkpoint && error.exit_code() != base::ExitCode::file_system) throw;
    }
  }
  return nlohmann::json::object();
}

Newest find_newest(const std::string& root) {
  Newest newest;
  std::vector<int64_t> steps = checkpoint_steps(root);
  if (steps.empty())
    throw CheckpointError("{}: there is no checkpoint in it: train first, or name another run or checkpoint", root);
  std::reverse(steps.begin(), steps.end());
  for (const int64_t step : steps) {
    const std::string folder = root + "/" + checkpoint_name(step);
    try {
      newest.checkpoint = load_checkpoint(folder);
      if (newest.checkpoint.step != step) {
        throw CheckpointError("{}: the manifest is of step {}", folder, newest.checkpoint.step);
      }
      return newest;
    } catch (const base::Error& error) {
      if (error.exit_code() != base::ExitCode::checkpoint && error.exit_code() != base::ExitCode::file_system) throw;
      newest.skipped.emplace_back(error.what());
    }
  }
  std::string reasons;
  for (const std::string& reason : newest.skipped) reasons += "\n  " + reason;
  throw CheckpointError("{}: none of the {} checkpoints can be used:{}", root, steps.size(), reasons);
}

void check_tensors(std::span<const NamedTensor> found, std::span<const ExpectedTensor> expected, const std::string& what,
                   const std::string& folder) {
  std::map<std::string_view, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : found) by_name[tensor.name] = &tensor;
  for (const ExpectedTensor& wanted : expected) {
    const auto row = by_name.find(wanted.name);
    if (row == by_name.end()) {
      throw CheckpointError("{}: another {}: {} {} is not in the checkpoint ({} tensors, wanted {})", folder, what, wanted.name,
                            shape_text(wanted.shape), found.size(), expected.size());
    }
    const NamedTensor& tensor = *row->second;
    if (tensor.shape != wanted.shape || tensor.dtype != wanted.dtype) {
      throw CheckpointError("{}: another {}: {} is {} {} in the checkpoint, wanted {} {}", folder, what, wanted.name,
                            name_of(tensor.dtype), shape_text(tensor.shape), name_of(wanted.dtype), shape_text(wanted.shape));
    }
    by_name.erase(row);
  }
  if (by_name.empty()) return;
  const NamedTensor& extra = *by_name.begin()->second;
  throw CheckpointError("{}: another {}: the checkpoint has {} {}, which is not wanted ({} tensors, wanted {})", folder, what,
                        extra.name, shape_text(extra.shape), found.size(), expected.size());
}

std::string not_finite(std::span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) {
    std::string found;
    if (tensor.dtype == StoredType::f32) found = not_finite_as<float>(tensor);
    if (tensor.dtype == StoredType::f64) found = not_finite_as<double>(tensor);
    if (!found.empty()) return found;
  }
  return {};
}

void check_finite(std::span<const NamedTensor> tensors, const std::string& folder) {
  if (const std::string found = not_finite(tensors); !found.empty())
    throw CheckpointError("{}: {}; all must be finite", folder, found);
}

}  // namespace gpipe::train
