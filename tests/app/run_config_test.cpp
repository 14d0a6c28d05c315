// What a configuration means: faults within and between its parts, row by row, and the way back to text.
#include "app/config_fields.h"
#include "app/yaml_writer.h"
#include "core/base/error.h"
#include "tests/app/run_program.h"
#include "tests/app/samples.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::good_config;
using test::read_with;
using test::small_catalog;

struct Row {
  std::string id;
  std::vector<std::string> sets;
  std::vector<std::string> says;
};

const std::vector<Row>& refused_rows() {
  static const std::vector<Row> rows{
      {"Y17 unknown part", {"pipelin.partitions=2"}, {"--set pipelin.partitions", "\"pipelin\"", "did you mean \"pipeline\"?"}},
      {"Y17 unknown key", {"train.learning_rat=1"}, {"\"learning_rat\"", "did you mean \"learning_rate\"?"}},
      {"Y18 scalar for a map", {"pipeline=3"}, {"pipeline", "wanted a map", "found 3"}},
      {"Y18 map for a scalar", {"train.seed={a: 1}"}, {"train.seed", "found a map"}},
      {"Y18 scalar for the network", {"network=relu"}, {"network", "list of layers", "found text \"relu\""}},
      {"Y19 empty part that is required", {"data="}, {"data: missing value"}},
      {"Y19 empty value", {"train.seed=~"}, {"train.seed: missing value"}},
      {"Y24 quoted number", {"train.seed=\"3\""}, {"found text in quotes \"3\""}},
      {"empty network", {"network=[]"}, {"network", "at least one layer"}},
      {"C1 zero stages", {"pipeline.partitions=0"}, {"--set pipeline.partitions", "0 is out of range", "1..4096 stages"}},
      {"C1 negative stages", {"pipeline.partitions=-2"}, {"-2 is out of range"}},
      {"C4 zero micro-batches", {"pipeline.micro_batches=0"}, {"0 is out of range", "1..65536"}},
      {"C5 more micro-batches than samples", {"pipeline.micro_batches=17"}, {"17 micro-batches", "16 samples", "batch_size"}},
      {"C8 batch size 0", {"train.batch_size=0"}, {"0 is out of range", "1..16777216 samples"}},
      {"C9 negative learning rate", {"train.learning_rate=-0.1"}, {"-0.1 is out of range", "0..1000"}},
      {"C9 learning rate that is no number", {"train.learning_rate=.nan"}, {"train.learning_rate", "finite"}},
      {"C9 learning rate 1e30", {"train.learning_rate=1e30"}, {"1e30 is out of range", "0..1000"}},
      {"C10 momentum 1.0", {"train.optimizer.sgd.momentum=1.0"}, {"train.optimizer.sgd.momentum", "1.0 is out of range"}},
      {"C15 unknown optimizer", {"train.optimizer=sdg"}, {"unknown optimizer \"sdg\"", "\"sgd\"?", "known: sgd, adam"}},
      {"C15 unknown learning-rate schedule", {"train.schedule=cosin"}, {"\"cosin\"", "\"cosine\"?", "known: constant, cosine"}},
      {"C15 unknown pipeline schedule", {"pipeline.schedule=gpip"}, {"one of gpipe, 1f1b", "\"gpip\"", "\"gpipe\"?"}},
      {"C15 unknown data set", {"data.train=cvs"}, {"unknown data set \"cvs\"", "known: csv, synthetic"}},
      {"C15 unknown setting of an optimizer", {"train.optimizer.sgd.momentun=0"}, {"\"momentun\"", "\"momentum\"?"}},
      {"C15 two optimizers", {"train.optimizer.adam={}"}, {"train.optimizer", "a map with 2 keys"}},
      {"C17 zero threads", {"pipeline.threads=0"}, {"0 is out of range", "1..1024 threads"}},
      {"C17 negative threads", {"pipeline.threads=-1"}, {"-1 is out of range"}},
      {"C17 a million threads", {"pipeline.threads=1000000"}, {"1000000 is out of range"}},
      {"C18 both lengths 0", {"train.epochs=0"}, {"exactly one of train.epochs and train.steps", "epochs 0 and steps 0"}},
      {"C18 both lengths given", {"train.steps=5"}, {"--set train.steps", "epochs 2 and steps 5"}},
      {"C21 empty output path", {"output.folder=\"\""}, {"output.folder", "wanted a path"}},
      {"C21 line break in the output path", {"output.folder=\"a\\nb\""}, {"without line breaks", "a\\nb"}},
      {"validation twice", {"data.validation=synthetic", "data.validation_split=0.1"}, {"not from both"}},
      {"a choice without its required setting", {"data.train=csv"}, {"data.train.csv.path", "missing value"}},
  };
  return rows;
}

}  // namespace

TEST_CASE("a configuration that cannot mean anything good is refused with place, value and limit") {
  for (const Row& row : refused_rows()) {
    CAPTURE(row.id);
    const auto reading = read_with(row.sets);
    REQUIRE(reading.problems.errors().size() >= 1);
    CHECK(reading.problems.errors().size() == 1);
    for (const std::string& part : row.says) {
      CAPTURE(part);
      CAPTURE(reading.problems.errors()[0]);
      CHECK(reading.problems.errors()[0].find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a good configuration is read, what it leaves out has its default") {
  const auto [config, problems] = read_with({});
  CHECK(problems.errors() == std::vector<std::string>{});
  CHECK(problems.warnings().empty());
  CHECK(config.name == "run");
  CHECK(config.network.items().size() == 3);
  CHECK(config.pipeline.partitions == 2);
  CHECK(config.pipeline.rematerialize == pipeline::Rematerialize::full);
  CHECK(config.train.epochs == 2);
  CHECK(config.train.seed == 1);
  CHECK(config.train.schedule.is_null());
  CHECK(config.output_folder() == "runs/run");
}

TEST_CASE("one rule for the length of a run: steps alone, or epochs alone") {
  CHECK(read_with({"train.epochs=0", "train.steps=5"}).problems.empty());
  CHECK(read_with({"train.steps=0"}).problems.empty());
}

TEST_CASE("C9: a learning rate of 0 is allowed with a warning") {
  const auto reading = read_with({"train.learning_rate=0"});
  CHECK(reading.problems.empty());
  REQUIRE(reading.config.warnings.size() == 1);
  CHECK(reading.config.warnings[0].find("--set train.learning_rate: 0 leaves all weights") != std::string::npos);
}

TEST_CASE("C7: fewer micro-batches than stages are no fault") {
  CHECK(read_with({"pipeline.partitions=8", "pipeline.micro_batches=1"}).problems.empty());
}

TEST_CASE("C21, C23: paths are taken literally, whatever stands in them") {
  for (const std::string folder : {"../x", "$HOME/{name}", "~/`ls`", "a b #c", "a: b", "x,y]z"}) {
    CAPTURE(folder);
    const auto reading = read_with({"output.folder=" + folder});
    CHECK(reading.problems.empty());
    CHECK(reading.config.output.folder == folder);
  }
}

TEST_CASE("all faults of a configuration are told at once") {
  const auto reading = read_with({"train.seed=x", "pipeline.threads=0", "outpt.folder=a", "train.optimizer=lion", "network=3"});
  CHECK(reading.problems.errors().size() == 5);
}

TEST_CASE("the merged configuration is a configuration, and means the same") {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {},
           {"pipeline.balance=[1, 2]", "train.schedule=cosine", "train.learning_rate=1e-7"},
           {"pipeline.balance={cut_after: [stem]}", "data.normalize={mean: [0.5], std: 0.25}", "output.folder=\"01\""},
           {"checkpoint.best=\"\"", "pipeline.rematerialize=none", "train.clip_norm=0.1", "pipeline.bind_threads=false"}}) {
    const auto first = read_with(sets);
    REQUIRE(first.problems.errors() == std::vector<std::string>{});
    const std::string text = write_yaml(write_run_config(first.config));
    const auto second = read_with({}, text);
    CHECK(second.problems.errors() == std::vector<std::string>{});
    CHECK(write_run_config(second.config) == write_run_config(first.config));
    CHECK(write_yaml(write_run_config(second.config)) == text);
  }
}

TEST_CASE("Y1: an empty file is no configuration, and the first missing key is named") {
  const test::TempFolder folder;
  for (const std::string text : {"", "# nothing\n"}) {
    test::write_file(folder / "empty.yaml", text);
    try {
      load_run_config(folder / "empty.yaml", {}, small_catalog());
      CHECK(false);
    } catch (const base::ConfigError& error) {
      const std::string message = error.what();
      CHECK(message.find("empty.yaml: no configuration") != std::string::npos);
      CHECK(message.find("\"network\"") != std::string::npos);
    }
  }
}

TEST_CASE("every setting is documented, and every number has its limits") {
  for (const Section& section : config_sections(small_catalog())) {
    for (const base::FieldInfo& info : section.table.infos) {
      CAPTURE(section.name + "." + info.key);
      CHECK(!info.help.empty());
      const bool number = info.type == base::FieldInfo::Type::integer || info.type == base::FieldInfo::Type::number;
      CHECK((!number || info.low.has_value()));
    }
  }
}

}  // namespace gpipe::app
