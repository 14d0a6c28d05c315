// eval and predict: a saved model, forward only, through the same stages.
#include "app/commands.h"
#include "app/session.h"
#include "app/yaml_tree.h"
#include "core/base/text.h"
#include "data/dataset_types.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace gpipe::app {
namespace {

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
  if (spec.classes > c.data.train->spec().classes)
    throw base::ConfigError("--input: it has {} classes, the training data {}", spec.classes, c.data.train->spec().classes);
  return opened.train;
}

/// A line of JSON a sample: the values that the network gives, and for classes the likeliest one with all probabilities.
class PredictionLines final : public train::PredictionSink {
 public:
  PredictionLines(const train::SampleSpec& spec, std::FILE* out) : spec_(spec), out_(out) {}
  void predictions(const float* values, int64_t rows, int64_t width, const float* results) override {
    for (int64_t row = 0; row < rows; ++row) {
      const float* v = values + row * width;
      nlohmann::json line{{"sample", next_++}};
      if (spec_.classes > 0) {
        const auto best = std::max_element(v, v + width) - v;
        line["class"] = best;
        if (static_cast<size_t>(best) < spec_.class_names.size()) line["name"] = spec_.class_names[static_cast<size_t>(best)];
        line["right"] = results[2 * row + 1] > 0.5F;
        line["probabilities"] = softmax(v, width);
      } else {
        line["values"] = std::vector<float>(v, v + width);
      }
      fmt::print(out_, "{}\n", line.dump());
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
  std::FILE* out_;
  int64_t next_ = 0;
};

train::Evaluation run_over(const Command& command, Composition& c, const std::shared_ptr<const train::Dataset>& data,
                           train::PredictionSink* sink) {
  const train::Checkpoint checkpoint = open_checkpoint(command, c);
  for (const std::string& warning : checkpoint.warnings) fmt::print(stderr, "warning: {}\n", warning);
  pipeline::Engine engine(*c.plan);
  train::restore_model(engine, checkpoint, c.optimizer->averages());
  if (!command.quiet && !command.json) fmt::print(stderr, "{} of {}\n", checkpoint.folder, data->describe());
  train::Loader loader(data, train::validation_loader(c.config.data, c.data.normalization, c.config.train.batch_size));
  return train::evaluate(engine, loader, sink);
}

}  // namespace

int run_eval(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  const auto data = data_for(command, *c);
  const train::Evaluation evaluation = run_over(command, *c, data, nullptr);
  const double speed = static_cast<double>(evaluation.samples) / evaluation.seconds;
  if (command.json) {
    fmt::print("{}\n", nlohmann::json{{"loss", evaluation.loss},
                                      {"accuracy", evaluation.accuracy},
                                      {"samples", evaluation.samples},
                                      {"seconds", evaluation.seconds},
                                      {"samples_per_second", speed}}
                           .dump());
    return 0;
  }
  fmt::print("loss {:.4f}", evaluation.loss);
  if (data->spec().classes > 0) fmt::print(", accuracy {:.2f} %", 100.0 * evaluation.accuracy);
  fmt::print(", {} samples in {} ({:.0f} samples/s)\n", base::format_count(evaluation.samples),
             base::format_duration(evaluation.seconds), speed);
  return 0;
}

int run_predict(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  const auto data = data_for(command, *c);
  std::FILE* out = stdout;
  if (!command.predict_output.empty()) {
    out = std::fopen(command.predict_output.c_str(), "wex");
    if (out == nullptr) base::fail_call("open", command.predict_output, errno);
  }
  PredictionLines lines(data->spec(), out);
  run_over(command, *c, data, &lines);
  const bool written = std::fflush(out) == 0 && std::ferror(out) == 0;
  const int error = errno;
  if (out != stdout) std::fclose(out);
  if (!written) base::fail_call("write", command.predict_output.empty() ? "standard output" : command.predict_output, error);
  return 0;
}

}  // namespace gpipe::app
