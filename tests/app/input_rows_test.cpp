// Bad input through the program, row by row: the exit code, what the message must name, and that nothing is created.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

struct Row {
  std::string id;
  std::vector<std::string> sets;
  int code;
  std::vector<std::string> says;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"C2 more stages than layers", {"pipeline.partitions=9"}, 2, {"9 partitions", "3 layers", "1 to 3"}},
      {"C3 counts of another sum", {"pipeline.balance=[1, 3]"}, 2, {"--set pipeline.balance", "sum 4", "sum 3"}},
      {"C3 counts with 0", {"pipeline.balance=[0, 3]"}, 2, {"pipeline.balance", "0 is out of range"}},
      {"C3 negative counts", {"pipeline.balance=[-1, 4]"}, 2, {"pipeline.balance", "-1 is out of range"}},
      {"C3 other number of counts", {"pipeline.balance=[1, 1, 1]"}, 2, {"3 counts", "wanted are 2"}},
      {"C3 cut after nothing known", {"pipeline.balance={cut_after: [nowhere]}"}, 2, {"'nowhere'"}},
      {"C5 more micro-batches than samples", {"pipeline.micro_batches=9"}, 2, {"9 micro-batches", "8 samples"}},
      {"C8 batch of 0", {"train.batch_size=0"}, 2, {"0 is out of range"}},
      {"C8 batch beyond the data", {"train.batch_size=49"}, 2, {"train.batch_size", "49", "48"}},
      {"C11 filter larger than the image",
       {"network=[conv2d: {out_channels: 2, kernel_size: 9}, flatten, linear: {out_features: 3}]",
        "data.train.synthetic.shape=[6, 6, 1]"},
       2,
       {"conv2d", "9", "[6, 6, 1]"}},
      {"C11 pooled to nothing",
       {"network=[max_pool2d: {kernel_size: 8}, flatten, linear: {out_features: 3}]", "data.train.synthetic.shape=[6, 6, 1]"},
       2,
       {"max_pool2d", "8", "[6, 6, 1]"}},
      {"C11 vectors for a layer of images", {"network.0={conv2d: {out_channels: 2, kernel_size: 1}}"}, 2, {"conv2d", "[6]"}},
      {"C13 no class", {"data.train.synthetic.classes=-1"}, 2, {"classes", "-1"}},
      {"C13 one class", {"data.train.synthetic.classes=1"}, 2, {"classes", "1"}},
      {"C13 fewer outputs than classes", {"network.2.linear.out_features=2"}, 2, {"2 values", "3 classes"}},
      {"C15 unknown layer", {"network.1=rleu"}, 2, {"'rleu'", "did you mean 'relu'"}},
      {"C15 unknown optimizer", {"train.optimizer=sdg"}, 2, {"\"sdg\"", "sgd"}},
      {"C15 unknown schedule", {"pipeline.schedule=gpip"}, 2, {"\"gpip\"", "gpipe"}},
      {"C15 unknown metric", {"checkpoint.best=accurcy"}, 2, {"checkpoint.best", "accurcy", "accuracy"}},
      {"C21 line break in the output path", {"output.folder=\"a\\nb\""}, 2, {"output.folder", "a\\nb"}},
      {"Y27 data that is not there", {"data.train={csv: {path: none.csv}}"}, 3, {"none.csv", "No such file"}},
      {"D28 data that is a device", {"data.train={csv: {path: /dev/zero}}"}, 3, {"/dev/zero", "device"}},
      {"D1 empty data", {"data.train={csv: {path: empty.csv}}"}, 3, {"empty.csv"}},
      {"D11 label beyond the classes",
       {"data.train={csv: {path: labels.csv, label: y, classes: 2}}"},
       3,
       {"labels.csv", "7", "2"}},
      {"D23 not a number", {"data.train={csv: {path: nan.csv, label: y}}"}, 3, {"nan.csv", "3", "nan"}},
      {"D14 cut gzip", {"data.train={idx: {images: cut.gz, labels: cut.gz}}"}, 3, {"cut.gz"}},
      {"D18 no NPY", {"data.train={npy: {inputs: labels.csv, labels: labels.csv}}"}, 3, {"labels.csv"}},
      {"D16 no whole record", {"data.train={cifar: {files: [labels.csv]}}"}, 3, {"labels.csv", "3073"}},
      {"D30 no sample after the split", {"data.validation_split=0.999"}, 3, {"0.999"}},
  };
  return all;
}

void fill(const TempFolder& folder) {
  test::write_file(folder / "run.yaml", test::made_up_config);
  test::write_file(folder / "empty.csv", "");
  test::write_file(folder / "labels.csv", "a,b,y\n1,2,0\n1,2,7\n");
  test::write_file(folder / "nan.csv", "a,b,y\n1,2,0\n1,nan,1\n");
  test::write_file(folder / "cut.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3\x63", 11));
}

}  // namespace

TEST_CASE("bad input gets its exit code and its words from train and from check, and nothing is created") {
  for (const Row& row : rows()) {
    CAPTURE(row.id);
    const TempFolder folder;
    fill(folder);
    for (const char* verb : {"train", "check"}) {
      CAPTURE(verb);
      std::vector<std::string> words{verb, "run.yaml"};
      for (const std::string& set : row.sets) words.insert(words.end(), {"--set", set});
      const Outcome outcome = run_child(folder, words);
      CAPTURE(outcome.err);
      CHECK(outcome.code == row.code);
      CHECK(outcome.out.empty());
      CHECK(contains(outcome.err, "error: "));
      for (const std::string& part : row.says) {
        CAPTURE(part);
        CHECK(contains(outcome.err, part));
      }
      CHECK(!std::filesystem::exists(folder / "run"));
    }
  }
}

TEST_CASE("faults of the network and of the batch against the data are told together") {
  const TempFolder folder;
  fill(folder);
  const Outcome outcome = run_child(folder, {"check", "run.yaml", "--set", "network.1=rleu", "--set", "train.batch_size=100"});
  CHECK(outcome.code == 2);
  CAPTURE(outcome.err);
  CHECK(contains(outcome.err, "'rleu'"));
  CHECK(contains(outcome.err, "train.batch_size: 100 samples"));
}

TEST_CASE("C19: a checkpoint interval beyond the run is a warning, and the last state is saved all the same") {
  const TempFolder folder;
  fill(folder);
  for (const char* verb : {"check", "train"}) {
    const Outcome outcome =
        run_child(folder, {verb, "run.yaml", "--set", "checkpoint.every_steps=1000", "--set", "checkpoint.every_epochs=0"});
    CHECK(outcome.code == 0);
    CHECK(contains(outcome.err, "warning: checkpoint.every_steps: a checkpoint every 1000 steps, but the run has 6"));
  }
  const auto all = test::checkpoints_of(folder / "run");
  REQUIRE(!all.empty());
  CHECK(all.back().filename() == "step-00000006");
}

TEST_CASE("C23: shell characters in a path are taken as they stand") {
  const TempFolder folder;
  fill(folder);
  const std::string name = "$HOME `ls` ~ *;x";
  CHECK(run_child(folder, {"train", "run.yaml", "--quiet", "--output", name}).code == 0);
  CHECK(std::filesystem::exists(folder / name / "result.json"));
}

}  // namespace gpipe::app
