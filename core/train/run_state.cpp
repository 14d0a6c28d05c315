#include "core/train/run_state.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace gpipe::train {
namespace {

std::vector<int64_t> extents(const tensor::TensorView& view) {
  return {view.shape.extents().begin(), view.shape.extents().end()};
}

NamedTensor named(std::string name, const tensor::TensorView& view) {
  return {std::move(name), extents(view), StoredType::f32, {view.data, view.bytes()}};
}

/// Copies each tensor found under its name into where `targets` has it.
void copy_into(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& targets, const std::string& what,
               const std::string& folder) {
  std::vector<ExpectedTensor> expected;
  for (const NamedTensor& target : targets) expected.push_back({target.name, target.shape, target.dtype});
  check_tensors(found, expected, what, folder);
  check_finite(found, folder);
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : found) by_name[tensor.name] = &tensor;
  for (const NamedTensor& target : targets)
    if (target.bytes.data() != nullptr)  // else another process has it
      std::memcpy(const_cast<std::byte*>(target.bytes.data()), by_name.at(target.name)->bytes.data(), target.bytes.size());
}

std::vector<NamedTensor> model_tensors(const pipeline::Engine& engine) {
  std::vector<NamedTensor> tensors;
  for (const pipeline::StateTensor* tensor : engine.tensors()) tensors.push_back(named(tensor->name, tensor->value));
  return tensors;
}

/// As the model, with the averages of the parameters in place of the parameters.
std::vector<NamedTensor> average_tensors(const pipeline::Engine& engine) {
  std::vector<NamedTensor> tensors;
  for (const pipeline::StateTensor* tensor : engine.tensors())
    tensors.push_back(named(tensor->name, tensor->spec != nullptr ? tensor->slots.back() : tensor->value));
  return tensors;
}

void require_average(const Checkpoint& checkpoint) {
  if (checkpoint.average_files.empty())
    throw base::CheckpointError(
        "{}: it was saved without train.ema_decay, there is no average of the weights in it; set "
        "train.ema_decay to 0 to do without",
        checkpoint.folder);
}

std::vector<NamedTensor> optimizer_tensors(const pipeline::Engine& engine, const Optimizer& optimizer) {
  std::vector<NamedTensor> tensors;
  const std::vector<std::string> slots = optimizer.slots();
  const size_t averages = optimizer.averages() ? 1 : 0;  // have a file of their own
  for (const pipeline::StateTensor* tensor : engine.tensors())
    for (size_t slot = 0; slot + averages < tensor->slots.size(); ++slot)
      tensors.push_back(named(tensor->name + "." + slots[slot], tensor->slots[slot]));
  return tensors;
}

}  // namespace

RunSaver::RunSaver(base::FileSystem& files, std::string root, pipeline::Engine& engine, const Optimizer& optimizer,
                   RunFacts facts, const CheckpointOptions& options)
    : files_(files),
      root_(std::move(root)),
      engine_(engine),
      optimizer_(optimizer),
      facts_(std::move(facts)),
      options_(options) {}

// What could not be loaded is not saved: running averages and slots overflow without a word, long after the loss was finite.
std::string RunSaver::save(const TrainState& state) {
  engine_.fetch();
  CheckpointContents contents;
  contents.run = facts_.run;
  contents.step = state.step;
  contents.model = model_tensors(engine_);
  if (optimizer_.averages()) contents.average = average_tensors(engine_);
  contents.optimizer = optimizer_tensors(engine_, optimizer_);
  contents.state = {{"step", state.step},
                    {"updates", state.updates},
                    {"epoch", state.epoch},
                    {"batch", state.batch},
                    {"best_step", state.best_step},
                    {"best_metric", options_.best},
                    {"loss_scale", state.loss_scale},
                    {"good_steps", state.good_steps},
                    {"optimizer", facts_.optimizer},
                    {"layers", facts_.layers},
                    {"device", facts_.device}};
  if (!facts_.algorithms.empty()) contents.state["algorithms"] = facts_.algorithms;
  for (const auto* tensors : {&contents.model, &contents.average, &contents.optimizer})
    if (const std::string what = not_finite(*tensors); !what.empty())
      throw base::DivergedError(
          "step {}: {}, and nothing was saved; the run has diverged. Try a lower train.learning_rate, train.warmup_steps or "
          "train.clip_norm",
          state.step, what);
  if (state.best) contents.state["best"] = *state.best;
  SavePolicy policy;
  policy.keep_last = options_.keep_last;
  policy.best_step = state.best ? state.best_step : -1;
  return save_checkpoint(files_, root_, contents, policy).folder;
}

void restore_model(pipeline::Engine& engine, const Checkpoint& checkpoint, bool averaged) {
  if (averaged) require_average(checkpoint);
  copy_into(averaged ? checkpoint.average() : checkpoint.model(), model_tensors(engine), "model", checkpoint.folder);
  engine.pack();
}

TrainState restore_run(pipeline::Engine& engine, const Optimizer& optimizer, const Checkpoint& checkpoint) {
  copy_into(checkpoint.model(), model_tensors(engine), "model", checkpoint.folder);
  if (optimizer.averages()) {
    require_average(checkpoint);
    copy_into(checkpoint.average(), average_tensors(engine), "average", checkpoint.folder);
  }
  copy_into(checkpoint.optimizer(), optimizer_tensors(engine, optimizer), "optimizer", checkpoint.folder);
  engine.pack();
  TrainState state;
  try {
    const nlohmann::json& saved = checkpoint.state;
    state.step = saved.at("step").get<int64_t>();
    state.updates = saved.at("updates").get<int64_t>();
    state.epoch = saved.at("epoch").get<int64_t>();
    state.batch = saved.at("batch").get<int64_t>();
    state.best_step = saved.at("best_step").get<int64_t>();
    if (saved.contains("best")) state.best = saved.at("best").get<double>();
    state.loss_scale = saved.value("loss_scale", 0.0);
    state.good_steps = saved.value("good_steps", int64_t{0});
  } catch (const nlohmann::json::exception& error) {
    throw base::CheckpointError("{}/state.json: {}; it was written by another version", checkpoint.folder, error.what());
  }
  return state;
}

void check_kinds(const Checkpoint& checkpoint, const RunFacts& now) {
  const auto layers = checkpoint.state.value("layers", now.layers);
  const auto [saved, here] = std::mismatch(layers.begin(), layers.end(), now.layers.begin(), now.layers.end());
  if (saved != layers.end() || here != now.layers.end())
    throw base::CheckpointError("{}: of another model: layer {} is \"{}\" in the checkpoint, \"{}\" in the configuration",
                                checkpoint.folder, saved - layers.begin() + 1, saved == layers.end() ? "none" : *saved,
                                here == now.layers.end() ? "none" : *here);
  const auto found = checkpoint.state.find("optimizer");
  if (found == checkpoint.state.end() || *found == now.optimizer) return;
  throw base::CheckpointError("{}: another optimizer: {} in the checkpoint, {} in the configuration", checkpoint.folder,
                              found->dump(), now.optimizer);
}

std::map<std::string, std::string> saved_algorithms(const nlohmann::json& state, const std::string& folder) {
  try {
    return state.value("algorithms", std::map<std::string, std::string>());
  } catch (const nlohmann::json::exception& error) {
    throw base::CheckpointError("{}/state.json: algorithms: {}", folder, error.what());
  }
}

}  // namespace gpipe::train
