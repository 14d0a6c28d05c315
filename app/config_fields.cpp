#include "app/config_fields.h"

#include "core/base/error.h"

#include <algorithm>

namespace gpipe::app {

using pipeline::PipelineOptions;
using train::CheckpointOptions;
using train::DataOptions;
using train::OutputOptions;
using train::TrainOptions;

base::FieldSet<Parts> part_fields() {
  base::FieldSet<Parts> f{"configuration"};
  f.add("network", &Parts::network)
      .required()
      .help("layers in order, or a map with layers, params and blocks, or {file: PATH, params: {...}}");
  f.add("pipeline", &Parts::pipeline).help("how the network is divided and run");
  f.add("data", &Parts::data).required().help("what is learned from");
  f.add("train", &Parts::train).required().help("how it is learned");
  f.add("checkpoint", &Parts::checkpoint).help("what is saved, and when");
  f.add("output", &Parts::output).help("where the run leaves its files");
  return f;
}

base::FieldSet<PipelineOptions> pipeline_fields(const Catalog& catalog) {
  base::FieldSet<PipelineOptions> f{"pipeline"};
  f.add("partitions", &PipelineOptions::partitions)
      .range(1, 4096)
      .unit("stages")
      .help("K, on as many devices; at most the layers");
  f.add("micro_batches", &PipelineOptions::micro_batches)
      .range(1, 65536)
      .help("M, parts of a mini-batch that follow each other through the stages; at most train.batch_size");
  f.add("balance", &PipelineOptions::balance)
      .help("auto (the default), a list of layer counts, or {cut_after: [names]}")
      .raw_schema(R"({"anyOf": [{"enum": ["auto", null]}, {"type": "array", "items": {"type": "integer", "minimum": 1}},
          {"type": "object", "properties": {"cut_after": {"type": "array", "items": {"type": "string"}}},
           "required": ["cut_after"], "additionalProperties": false}]})");
  f.add("objective", &PipelineOptions::objective, {"bottleneck", "variance", "cumulative"})
      .help("what balance: auto looks for: the fastest slowest stage, the least variance, or equal shares in one pass");
  f.add("memory_limit", &PipelineOptions::memory_limit)
      .help("largest arena of a device, as in 8GiB, or a list with one a device; 0: the device's own memory")
      .raw_schema(R"({"anyOf": [{"type": ["integer", "string", "null"]},
          {"type": "array", "items": {"type": ["integer", "string"]}}]})");
  f.add("speeds", &PipelineOptions::speeds)
      .help("a list with one number a device, where they are not equally fast: [1, 0.5]; none: all equal")
      .raw_schema(R"({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}}]})");
  f.add("schedule", &PipelineOptions::schedule).one_of(names_of(catalog.schedules)).help("order of the tasks on each stage");
  f.add("chunks", &PipelineOptions::chunks)
      .range(0, 64)
      .unit("stages")
      .help("V, on each device, for schedule interleaved; 0: the schedule's own, there 2");
  f.add("activation_limit", &PipelineOptions::activation_limit)
      .range(0, 1e6)
      .unit("activations")
      .help("of one micro-batch in one device, that a device may hold, for schedules zb_auto and zb_v; 0: partitions");
  f.add("rematerialize", &PipelineOptions::rematerialize, {"full", "none", "keep_first", "auto"})
      .help("recompute all activations in backward, none, all but the first micro-batch's, or as few as memory_limit allows");
  f.add("search", &PipelineOptions::search)
      .help(
          "take the fastest partitions, micro_batches, balance, schedule, chunks and rematerialize that fit (plan --search); "
          "partitions above 1 is the most devices then. `pipeline: auto` is short for it");
  f.add("search_keeps", &PipelineOptions::search_keeps)
      .help("what a search leaves as it is set: partitions, micro_batches, schedule, rematerialize");
  f.add("threads", &PipelineOptions::threads).range(1, 1024).unit("threads").help("of each stage, on a CPU");
  f.add("bind_threads", &PipelineOptions::bind_threads).help("each thread keeps to a core, when there are enough");
  f.add("device", &PipelineOptions::device).one_of({"cpu", "cuda"}).help("what the stages run on");
  f.add("devices", &PipelineOptions::devices)
      .help("a list with the GPU of each stage's device, as in [0, 1]; none: the stages share all GPUs evenly, in order")
      .raw_schema(R"({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer", "minimum": 0}}]})");
  f.add("transfer_timeout", &PipelineOptions::transfer_timeout)
      .range(1, 1e6)
      .unit("seconds")
      .help(
          "how long NCCL may take to send from GPU to GPU once all before it is done, and a process may wait for another; then "
          "the "
          "run ends with 7");
  return f;
}

base::FieldSet<DataOptions> data_fields() {
  base::FieldSet<DataOptions> f{"data"};
  f.add("train", &DataOptions::train).required().help("data set to learn from");
  f.add("validation", &DataOptions::validation).help("data set to measure on");
  f.add("validation_split", &DataOptions::validation_split)
      .range(0, 1, /*open_end=*/true)
      .help("share of the training set that is held out instead, drawn by the seed");
  f.add("normalize", &DataOptions::normalize)
      .help("auto (from the training set), or {mean: [...], std: [...]} per channel; none leaves values as stored")
      .raw_schema(R"({"anyOf": [{"enum": ["auto", null]}, {"type": "object", "properties": {
          "mean": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]},
          "std": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}},
          "required": ["mean", "std"], "additionalProperties": false}]})");
  f.add("random_crop", &DataOptions::random_crop)
      .range(0, 4096)
      .unit("pixels")
      .help("zero padding before a random crop to the old size; 0: no crop");
  f.add("horizontal_flip", &DataOptions::horizontal_flip).help("mirror half of the samples, at random");
  f.add("cutout", &DataOptions::cutout).range(0, 4096).unit("pixels").help("side of a random square of zeros; 0: none");
  f.add("shuffle", &DataOptions::shuffle).help("a new order each epoch, drawn by the seed");
  f.add("drop_last", &DataOptions::drop_last).help("leave out the last, smaller mini-batch of an epoch");
  f.add("prefetch", &DataOptions::prefetch).range(0, 64).unit("mini-batches").help("prepared ahead");
  return f;
}

base::FieldSet<TrainOptions> train_fields() {
  base::FieldSet<TrainOptions> f{"train"};
  f.add("batch_size", &TrainOptions::batch_size).range(1, 1 << 24).unit("samples").help("N, the mini-batch: samples an update");
  f.add("epochs", &TrainOptions::epochs)
      .range(0, 1e6)
      .unit("epochs")
      .help("times through the training set; exactly one of epochs and steps is above 0");
  f.add("steps", &TrainOptions::steps).range(0, 1e12).unit("steps").help("updates in all, instead of epochs");
  f.add("loss", &TrainOptions::loss).help("cross_entropy for classes (the default there), mse for values");
  f.add("optimizer", &TrainOptions::optimizer).help("update rule; the default is sgd");
  f.add("learning_rate", &TrainOptions::learning_rate).range(0, 1000).help("of the first step after the warm-up");
  f.add("schedule", &TrainOptions::schedule).help("how the learning rate goes on; the default is constant");
  f.add("warmup_steps", &TrainOptions::warmup_steps).range(0, 1e12).unit("steps").help("linear rise of the learning rate");
  f.add("ema_decay", &TrainOptions::ema_decay)
      .range(0, 1, true)
      .help(
          "average of the weights over updates, evaluated and saved beside them; update n has at most (1 + n) / (10 + n); 0: "
          "none");
  f.add("clip_norm", &TrainOptions::clip_norm).range(0, 1e9).help("largest norm of the whole gradient; 0: no limit");
  f.add("init_from", &TrainOptions::init_from)
      .help("checkpoint folder or safetensors file to start from, or {path, names, fresh, average}")
      .raw_schema(R"({"anyOf": [{"type": ["string", "null"]}, {"type": "object", "properties": {
          "path": {"type": "string"}, "names": {"type": "object"}, "average": {"type": "boolean"},
          "fresh": {"type": "array", "items": {"type": "string"}}}, "required": ["path"], "additionalProperties": false}]})");
  f.add("parts", &TrainOptions::parts)
      .help("parts that learn in their own way: a list of {match, learning_rate (a factor), frozen}; the last match counts")
      .raw_schema(R"({"type": ["array", "null"], "items": {"type": "object", "properties": {"match": {"type": "string"},
          "learning_rate": {"type": "number"}, "frozen": {"type": "boolean"}}, "required": ["match"],
          "additionalProperties": false}})");
  f.add("decay_norms_and_biases", &TrainOptions::decay_norms_and_biases).help("weight decay for norms and biases too");
  f.add("seed", &TrainOptions::seed).at_least(0).help("of initial weights, order, dropout, augmentation");
  f.add("validate_every", &TrainOptions::validate_every).range(0, 1e12).unit("steps").help("0: at the end of each epoch");
  f.add("precision", &TrainOptions::precision, {"f32", "tf32", "bf16", "f16"})
      .help(
          "what the factors in convolutions and linear maps are rounded to; sums and all else are f32. CPUs: bf16 wants AVX-512, "
          "tf32 and f16 are slower than f32 there");
  f.add("deterministic", &TrainOptions::deterministic)
      .help(
          "no algorithms of GPUs that give other bits every time; with false steps may be faster, and no two runs are the same; "
          "on CPUs it changes nothing");
  f.add("loss_scale", &TrainOptions::loss_scale)
      .range(0, 1.7014118346046923e38)
      .help(
          "a power of two on the loss, so that small gradients do not vanish: halved, and the update left out, when a gradient "
          "overflows; 0: none");
  f.add("loss_scale_growth", &TrainOptions::loss_scale_growth)
      .range(1, 1e12)
      .unit("steps")
      .help("without overflow, after which the scale doubles");
  f.add("on_divergence", &TrainOptions::on_divergence)
      .one_of({"stop", "skip"})
      .help("when loss or gradient is not finite: end the run, or leave out the update");
  return f;
}

base::FieldSet<CheckpointOptions> checkpoint_fields() {
  base::FieldSet<CheckpointOptions> f{"checkpoint"};
  f.add("every_steps", &CheckpointOptions::every_steps).range(0, 1e12).unit("steps").help("0: not by steps");
  f.add("every_epochs", &CheckpointOptions::every_epochs).range(0, 1e6).unit("epochs").help("0: not by epochs");
  f.add("keep_last", &CheckpointOptions::keep_last).range(1, 1e6).unit("checkpoints").help("older ones are removed");
  f.add("best", &CheckpointOptions::best)
      .one_of({"", "loss", "accuracy", "validation_loss", "validation_accuracy"})
      .help("metric whose best checkpoint is kept too; \"\": none");
  f.add("final_save", &CheckpointOptions::final_save).help("save at the end of the run");
  return f;
}

base::FieldSet<OutputOptions> output_fields() {
  base::FieldSet<OutputOptions> f{"output"};
  f.add("folder", &OutputOptions::folder).help("run folder; {name} is the configuration file's name without .yaml");
  f.add("log_every", &OutputOptions::log_every).range(1, 1e12).unit("steps").help("between lines of metrics.jsonl");
  return f;
}

std::vector<Section> config_sections(const Catalog& catalog) {
  return {{"pipeline", "How the network is divided into stages, and how they work together", pipeline_fields(catalog).table()},
          {"data", "What is learned from", data_fields().table()},
          {"train", "How it is learned", train_fields().table()},
          {"checkpoint", "What is saved, and when", checkpoint_fields().table()},
          {"output", "Where the run leaves its files", output_fields().table()}};
}

FoundField find_field(const std::vector<Section>& sections, const std::string& path) {
  for (const Section& section : sections) {
    for (size_t i = 0; i < section.table.infos.size(); ++i) {
      if (base::detail::join_path(section.name, section.table.infos[i].key) != path) continue;
      return {section.table.infos[i], base::default_of(section.table, i)};
    }
  }
  throw base::BugError("no field {}", path);
}

}  // namespace gpipe::app
