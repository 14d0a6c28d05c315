// simulate through the program: published rates and closed forms come out, schedules are compared, slips are told.
#include "tests/app/tiny_run.h"
#include "tests/support/xml.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_program;
using test::TempFolder;

Outcome simulate(const std::string& flags) {
  const TempFolder folder;
  return run_program(folder, "simulate " + flags);
}

/// The JSON lines of a run.
std::vector<nlohmann::json> lines_of(const Outcome& outcome) {
  std::vector<nlohmann::json> all;
  std::istringstream in(outcome.out);
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line, nullptr, false));
  return all;
}

std::string refusal(const std::string& flags) {
  const Outcome outcome = simulate(flags);
  CAPTURE(flags);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  return outcome.err;
}

}  // namespace

TEST_CASE("simulate: the published rates of 1f1b, zb_h1 and zb_h2 to four digits, interleaved within 0.004") {
  const auto path = test::shared("reference/zero_bubble_rates.json");
  if (!path) return;
  const nlohmann::json reference = test::read_json(*path);
  int compared = 0;
  for (const nlohmann::json& row : reference["rows"]) {
    const Outcome outcome = simulate(
        fmt::format("--schedule 1f1b,zb_h1,zb_h2,interleaved --stages {} --micro-batches {} --forward {} --backward-input {} "
                    "--backward-weight {} --transfer {} --chunks {} --weight-memory-share {} --json",
                    row["stages"].dump(), row["micro_batches"].dump(), row["forward_ms"].dump(), row["backward_input_ms"].dump(),
                    row["backward_weight_ms"].dump(), row["transfer_ms"].dump(), row["interleaved_chunks"].dump(),
                    row["weight_memory_share"].dump()));
    CAPTURE(row.dump());
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const auto lines = lines_of(outcome);
    REQUIRE(lines.size() == 4);
    for (const nlohmann::json& line : lines) {
      const std::string schedule = line["schedule"];
      CAPTURE(schedule);
      const double wanted = row["bubble_rate"][schedule];
      CHECK(std::abs(line["bubble_rate"].get<double>() - wanted) < (schedule == "interleaved" ? 0.004 : 0.00006));
      CHECK(line["peak_activations"].size() == row["stages"].get<size_t>());
      ++compared;
    }
  }
  CHECK(compared >= 24);
}

TEST_CASE("simulate: gpipe's closed forms, and what each device holds") {
  for (const auto& [stages, micro_batches] : {std::pair{1, 1}, {4, 1}, {4, 8}, {7, 5}}) {
    const auto lines =
        lines_of(simulate(fmt::format("--schedule gpipe --stages {} --micro-batches {} --forward 2 --backward-input 3 "
                                      "--backward-weight 1.5 --json",
                                      stages, micro_batches)));
    REQUIRE(lines.size() == 1);
    const nlohmann::json& line = lines.front();
    CAPTURE(line.dump());
    const double rate = (stages - 1.0) / (micro_batches + stages - 1.0);
    CHECK(line["makespan_ms"].get<double>() == doctest::Approx((micro_batches + stages - 1) * 6.5));
    CHECK(line["bubble_rate"].get<double>() == doctest::Approx(rate));
    CHECK(line["peak_activations"] == std::vector<double>(static_cast<size_t>(stages), micro_batches));
    for (const nlohmann::json& share : line["idle_share"]) CHECK(share.get<double>() == doctest::Approx(rate));
    CHECK(line["stages"] == stages);
    CHECK(line["micro_batches"] == micro_batches);
    CHECK(line["chunks"] == 1);
  }
}

TEST_CASE("simulate: with recompute a device holds one micro-batch's activations, and works longer") {
  const std::string flags = "--schedule gpipe --stages 3 --micro-batches 4 --json";
  const auto kept = lines_of(simulate(flags)), again = lines_of(simulate(flags + " --recompute 0.5"));
  REQUIRE((kept.size() == 1 && again.size() == 1));
  // The recompute of the first stages hides behind the wait for the gradient; the last stage has nowhere to hide it.
  CHECK(kept[0]["makespan_ms"].get<double>() == doctest::Approx(6 * 3));
  CHECK(again[0]["makespan_ms"].get<double>() == doctest::Approx(6 * 3 + 4 * 0.5));
  CHECK(again[0]["peak_activations"] == std::vector<double>{1, 1, 1});
  CHECK(contains(simulate("--schedule gpipe --stages 3 --micro-batches 4 --recompute 1").out, "leave out the inputs"));
}

TEST_CASE("simulate: one schedule shows its timeline, several are compared in one table, in the order given, each once") {
  const Outcome one = simulate("--schedule zb_h1 --stages 2 --micro-batches 3");
  CHECK(one.code == 0);
  CHECK(contains(one.out, "2 stages, 3 micro-batches; ms of a device for a micro-batch: forward 1,"));
  CHECK(contains(one.out, "W weight gradients"));
  CHECK(contains(one.out, "stage 1    "));
  const Outcome many =
      simulate("--schedule 1f1b --schedule gpipe,1f1b,interleaved --stages 2 --micro-batches 4 --memory-limit 2");
  CAPTURE(many.out);
  CHECK(many.out.find("\n1f1b") < many.out.find("\ngpipe"));
  CHECK(many.out.find("\ngpipe") < many.out.find("\ninterleaved (V = 2)"));
  CHECK(many.out.find("\n1f1b") == many.out.rfind("\n1f1b"));
  CHECK(contains(many.out, "more than --memory-limit 2: gpipe"));
  for (const std::string& text : {one.out, many.out}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 120);
  }
}

TEST_CASE("simulate: the picture is written as a whole, for its owner alone, with a panel a schedule") {
  const TempFolder folder;
  const std::string flags = "simulate --schedule gpipe,zb_h2 --stages 4 --micro-batches 6 --svg picture.svg --json";
  REQUIRE(run_program(folder, flags).code == 0);
  const std::string svg = test::content_of(folder / "picture.svg");
  CHECK(test::xml_fault(svg) == "");
  CHECK(contains(svg, ">gpipe: K = 4, M = 6, makespan 27 ms, bubble 33.33 %<"));
  CHECK(contains(svg, ">zb_h2: K = 4, M = 6, makespan 21 ms, bubble 5.26 %<"));
  CHECK((test::mode_of(folder / "picture.svg") & 077) == 0);
  CHECK(run_program(folder, flags).code == 0);  // drawn anew
  const Outcome nowhere = run_program(folder, "simulate --schedule gpipe --stages 4 --micro-batches 6 --svg no/where.svg");
  CHECK(nowhere.code == 6);
  CHECK(nowhere.out.empty());
}

TEST_CASE("simulate: a slip ends with 2, and says what would do") {
  const std::string good = "--schedule gpipe --stages 4 --micro-batches 6 ";
  CHECK(contains(refusal("--schedule 1fb1 --stages 4 --micro-batches 6"),
                 "error: --schedule: unknown schedule \"1fb1\", did you mean \"1f1b\"? known: gpipe, 1f1b"));
  CHECK(contains(refusal("--schedule gpipe, --stages 4 --micro-batches 6"), "unknown schedule \"\"; known: gpipe"));
  const std::string missing = refusal("--schedule gpipe");
  CHECK(contains(missing, "error: --stages: missing value"));
  CHECK(contains(missing, "error: --micro-batches: missing value"));
  CHECK(contains(refusal("--stages 2 --micro-batches 2"), "error: --schedule: missing value"));
  const std::string both = refusal("--schedule gpipe --stages 0 --micro-batches many");
  CHECK(contains(both, "error: --stages: 0 is out of range: wanted 1..4096"));
  CHECK(contains(both, "error: --micro-batches: wanted an integer, found text \"many\""));
  CHECK(contains(refusal(good + "--forward -1"), "--forward: -1 is out of range"));
  CHECK(contains(refusal(good + "--transfer inf"), "--transfer: wanted a number of ms"));
  CHECK(contains(refusal(good + "--weight-memory-share 2"), "wanted 0..1"));
  CHECK(contains(refusal(good + "--forward=0 --backward-input=0 --backward-weight=0"), "one at least must take time"));
  CHECK(contains(refusal(good + "--micro-batch 3"), "did you mean --micro-batches?"));
  CHECK(contains(refusal(good + "--stages 5"), "--stages"));
  CHECK(contains(refusal(good + "run.yaml"), "one argument too many"));
  CHECK(contains(refusal("--schedule interleaved --stages 4 --micro-batches 6"),
                 "error: --micro-batches: schedule interleaved takes a multiple of the 4 devices, found 6; 8 would do"));
  CHECK(contains(refusal("--schedule gpipe --stages 1000 --micro-batches 10000 --recompute 1"), "to be held at once"));
}

TEST_SUITE("slow") {
  TEST_CASE("simulate: 1,000 devices and 10,000 micro-batches, with a picture that stays small") {
    const TempFolder folder;
    const Outcome outcome =
        run_program(folder, "simulate --schedule 1f1b --stages 1000 --micro-batches 10000 --svg a.svg --json");
    REQUIRE(outcome.code == 0);
    CHECK(lines_of(outcome).front()["bubble_rate"].get<double>() == doctest::Approx(999.0 / 10999.0));
    const std::string svg = test::content_of(folder / "a.svg");
    CHECK(contains(svg, "96 of 1000 stages shown; 20,000,000 spans"));
    CHECK(svg.size() < 2'000'000);
  }
}

}  // namespace gpipe::app
