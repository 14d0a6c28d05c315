// eval and predict: a saved model, forward only, through the same stages.
#include "app/commands.h"
#include "app/generate.h"
#include "app/output_file.h"
#include "app/session.h"
#include "app/yaml_tree.h"
#include "core/base/text.h"
#include "data/dataset_types.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

namespace gpipe::app {
namespace {

/// Data without targets for a network that was made for some: they are zeros, and nothing is made of them.
class Unlabelled final : public train::Dataset {
 public:
  Unlabelled(std::shared_ptr<const train::Dataset> data, const train::SampleSpec& wanted)
      : data_(std::move(data)), spec_(wanted) {
    spec_.labelled = false;
    spec_.narrower.clear();
  }
  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return data_->size(); }
  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    int32_t none = 0;
    data_->read(index, input, std::as_writable_bytes(std::span(&none, 1)));
    std::fill(target.begin(), target.end(), std::byte{0});
  }
  void recheck() const override { data_->recheck(); }
  const train::Tokenizer* tokenizer() const override { return data_->tokenizer(); }
  std::string describe() const override { return data_->describe(); }

 private:
  std::shared_ptr<const train::Dataset> data_;
  train::SampleSpec spec_;
};

/// The data to look at: what the command names, else the validation data, else the training data.
std::shared_ptr<const train::Dataset> data_for(const Command& command, const Composition& c) {
  if (command.predict_input.empty()) return c.data.validation ? c.data.validation : c.data.train;
  train::DataOptions options;
  options.train = parse_yaml(command.predict_input, "--input");
  base::Problems problems;
  const auto types = data::dataset_types();
  auto opened = train::open_data(options, types, 0, problems);
  problems.throw_if_any();
  const train::SampleSpec& spec = opened.train->spec();
  if (!(spec.input == c.data.train->spec().input))
    throw base::ConfigError("--input: its samples are {}, those that the network was made for {}", spec.input,
                            c.data.train->spec().input);
  if (!spec.labelled) return std::make_shared<Unlabelled>(opened.train, c.data.train->spec());
  if (spec.classes > c.data.train->spec().classes)
    throw base::ConfigError("--input: it has {} classes, the training data {}", spec.classes, c.data.train->spec().classes);
  return opened.train;
}

/// A line of JSON a sample: the values that the network gives, and for classes the likeliest one with all probabilities.
class PredictionLines final : public train::PredictionSink {
 public:
  PredictionLines(const train::SampleSpec& spec, OutputFile& out) : spec_(spec), out_(out) {}
  void predictions(const float* values, int64_t rows, int64_t width, const float* results) override {
    for (int64_t row = 0; row < rows; ++row) {
      const float* v = values + row * width;
      nlohmann::json line{{"sample", next_++}};
      if (spec_.classes > 0) {
        const auto best = std::max_element(v, v + width) - v;
        line["class"] = best;
        if (static_cast<size_t>(best) < spec_.class_names.size()) line["name"] = spec_.class_names[static_cast<size_t>(best)];
        if (spec_.labelled) line["right"] = results[2 * row + 1] > 0.5F;
        line["probabilities"] = softmax(v, width);
      } else {
        line["values"] = std::vector<float>(v, v + width);
      }
      out_.write(line.dump() + "\n");
    }
  }

 private:
  static std::vector<double> softmax(const float* v, int64_t width) {
    const double top = static_cast<double>(*std::max_element(v, v + width));
    std::vector<double> out;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += out.emplace_back(std::exp(static_cast<double>(v[i]) - top));
    for (double& p : out) p /= sum;
    return out;
  }

  const train::SampleSpec& spec_;
  OutputFile& out_;
  int64_t next_ = 0;
};

/// For tokens a line of JSON a sample as well: how well its targets are predicted, each behind the ones before it.
class TokenLines final : public train::PredictionSink {
 public:
  TokenLines(const train::Dataset& data, OutputFile& out)
      : data_(data),
        out_(out),
        input_(static_cast<size_t>(data.spec().input.elements())),
        target_(static_cast<size_t>(data.spec().target.elements())) {}
  bool wants_values() const override { return false; }
  void predictions(const float*, int64_t rows, int64_t, const float* results) override {
    for (int64_t row = 0; row < rows; ++row) {
      data_.read(next_, std::as_writable_bytes(std::span(input_)), std::as_writable_bytes(std::span(target_)));
      const auto real = std::count_if(target_.begin(), target_.end(), [](int32_t t) { return t != device::k_ignored_target; });
      const double targets = std::max(1.0, static_cast<double>(real));
      const double loss = static_cast<double>(results[2 * row]) / targets;
      out_.write(nlohmann::json{{"sample", next_++},
                                {"tokens", real},
                                {"loss", loss},
                                {"perplexity", std::exp(loss)},
                                {"accuracy", static_cast<double>(results[2 * row + 1]) / targets}}
                     .dump() +
                 "\n");
    }
  }

 private:
  const train::Dataset& data_;
  OutputFile& out_;
  std::vector<int32_t> input_, target_;
  int64_t next_ = 0;
};

train::Evaluation run_over(const Composition& c, pipeline::Engine& engine, const std::shared_ptr<const train::Dataset>& data,
                           train::PredictionSink* sink) {
  train::LoaderOptions options = train::validation_loader(c.config.data, c.data.normalization, c.config.train.batch_size);
  // A sink wants the samples in their order; and --input may have other buckets than those that were planned.
  options.buckets = sink == nullptr && data->spec().narrower == c.data.train->spec().narrower;
  train::Loader loader(data, options);
  return train::evaluate(engine, loader, sink);
}

TrainedModel loaded_for(const Command& command, const Composition& c, const train::Dataset& data) {
  TrainedModel model = load_trained(command, c);
  if (!command.quiet && !command.json) fmt::print(stderr, "{} of {}\n", model.folder, data.describe());
  return model;
}

}  // namespace

int run_eval(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  const auto data = data_for(command, *c);
  if (command.bleu) check_translates(*c, data->tokenizer());
  const TrainedModel model = loaded_for(command, *c, *data);
  const train::Evaluation evaluation = run_over(*c, *model.engine, data, nullptr);
  std::vector<TaggedBleu> bleu;
  if (command.bleu) bleu = bleu_of(*c, *model.engine, *data, command.quiet || command.json);
  const double speed = static_cast<double>(evaluation.samples) / evaluation.seconds;
  const bool tokens = data->spec().predicts_tokens();
  if (command.json) {
    nlohmann::json result{{"loss", evaluation.loss},
                          {"accuracy", evaluation.accuracy},
                          {"samples", evaluation.samples},
                          {"seconds", evaluation.seconds},
                          {"samples_per_second", speed}};
    if (tokens) {
      result["perplexity"] = std::exp(evaluation.loss);
      result["tokens"] = evaluation.targets;
      result["tokens_per_second"] = static_cast<double>(evaluation.targets) / evaluation.seconds;
    }
    for (const TaggedBleu& part : bleu) {
      if (part.tag.empty())
        result["bleu"] = json_of(part.bleu);
      else
        result["bleu_by_tag"][part.tag] = json_of(part.bleu);
    }
    fmt::print("{}\n", result.dump());
    return 0;
  }
  fmt::print("loss {:.4f}", evaluation.loss);
  if (tokens) fmt::print(", perplexity {:.3f}", std::exp(evaluation.loss));
  if (data->spec().classes > 0) fmt::print(", accuracy {:.2f} %", 100.0 * evaluation.accuracy);
  fmt::print(", {} samples in {} ({:.0f} samples/s)\n", base::format_count(evaluation.samples),
             base::format_duration(evaluation.seconds), speed);
  for (const TaggedBleu& part : bleu) fmt::print("{}{}{}\n", part.tag, part.tag.empty() ? "" : " ", part.bleu.text());
  return 0;
}

int run_predict(const Command& command, const Catalog& catalog) {
  if (command.generate.prompted || !command.generate.input_text.empty()) return run_generate(command, catalog);
  const auto c = open_session(command, catalog);
  const auto data = data_for(command, *c);
  OutputFile out(command.predict_output);
  const TrainedModel model = loaded_for(command, *c, *data);
  PredictionLines lines(data->spec(), out);
  TokenLines token_lines(*data, out);
  train::PredictionSink* sink = &lines;
  if (data->spec().predicts_tokens()) sink = &token_lines;
  run_over(*c, *model.engine, data, sink);
  out.close();
  return 0;
}

}  // namespace gpipe::app
