// Schedules as data: legality, deadlock freedom, live counts, and that the checker sees what is wrong.
#include "core/pipeline/schedule.h"

#include "core/base/error.h"
#include "core/base/rng.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace gpipe;
using pipeline::Schedule;
using pipeline::Task;
using pipeline::Work;

namespace {

Schedule made(const pipeline::ScheduleType& type, int devices, int micro_batches, bool recompute) {
  Schedule schedule = type.make({.devices = devices, .micro_batches = micro_batches});
  return recompute ? pipeline::with_recompute(std::move(schedule), [](int, int) { return true; }) : schedule;
}

Schedule gpipe_rows(int devices, int micro_batches, bool recompute) {
  return made(pipeline::find_schedule("gpipe"), devices, micro_batches, recompute);
}

}  // namespace

TEST_CASE("gpipe's rows for K=2, M=3 are these") {
  const Schedule plain = gpipe_rows(2, 3, false);
  CHECK(pipeline::picture(plain) == "device 0   F0 F1 F2 B0 B1 B2\ndevice 1   F0 F1 F2 B0 B1 B2\n");
  const Schedule recompute = gpipe_rows(2, 3, true);
  CHECK(pipeline::picture(recompute) == "device 0   F0 F1 F2 R0 B0 R1 B1 R2 B2\ndevice 1   F0 F1 F2 R0 B0 R1 B1 R2 B2\n");
}

TEST_CASE("every schedule passes the checker for K=1..16 and M=1..32") {
  for (const auto& type : pipeline::schedule_types())
    for (int stages = 1; stages <= 16; ++stages)
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches)
        for (const bool recompute : {false, true}) {
          CAPTURE(fmt::format("{} K={} M={}", type.name, stages, micro_batches));
          CHECK_NOTHROW(pipeline::check_schedule(made(type, stages, micro_batches, recompute)));
        }
}

TEST_CASE("gpipe keeps every micro-batch and recomputes one at a time") {
  for (const int micro_batches : {1, 4, 9}) {
    const Schedule schedule = gpipe_rows(3, micro_batches, true);
    CHECK(pipeline::most_live(schedule, 1, Work::forward, Work::backward) == micro_batches);
    CHECK(pipeline::most_live(schedule, 1, Work::recompute, Work::backward) == 1);
  }
}

TEST_CASE("an unknown schedule is refused with the known ones") {
  CHECK_THROWS_WITH_AS(pipeline::find_schedule("gpip"), doctest::Contains("gpipe"), base::ConfigError);
}

TEST_CASE("the checker finds a dropped, doubled, swapped, changed or misplaced task") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    const int stages = 2 + static_cast<int>(random.below(0, 4));
    const int micro_batches = 2 + static_cast<int>(random.below(1, 5));
    Schedule schedule = gpipe_rows(stages, micro_batches, random.below(2, 2) == 0);
    auto& row = schedule.rows[random.below(3, static_cast<uint32_t>(stages))];
    const size_t at = random.below(4, static_cast<uint32_t>(row.size() - 1));
    const uint32_t kind = random.below(5, 6);
    const auto before = row;
    switch (kind) {
      case 0: row.erase(row.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 1: row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), row[at]); break;
      case 2: {  // two micro-batches of the same work (a recompute may well come before another's backward)
        const auto next = std::find_if(row.begin() + static_cast<std::ptrdiff_t>(at) + 1, row.end(),
                                       [&](const Task& task) { return task.work == row[at].work; });
        if (next != row.end()) std::swap(row[at], *next);
        break;
      }
      case 3: row[at].micro = (row[at].micro + 1) % micro_batches; break;
      case 4: row[at].work = row[at].work == Work::backward ? Work::forward : Work::backward; break;
      default: std::rotate(row.begin(), row.begin() + 1, row.end()); break;
    }
    if (row == before) continue;
    CAPTURE(fmt::format("seed {} fault {} at {}", seed, kind, at));
    CHECK_THROWS_AS(pipeline::check_schedule(schedule), base::BugError);
  }
}

TEST_CASE("rows that wait for each other for ever are found") {
  // Stage 0 wants to go back before it has sent micro-batch 1; stage 1 wants all forwards first.
  Schedule schedule{2, 2, 2, {0, 1}, {}};
  schedule.rows = {{{Work::forward, 0}, {Work::backward, 0}, {Work::forward, 1}, {Work::backward, 1}},
                   {{Work::forward, 0, 1}, {Work::forward, 1, 1}, {Work::backward, 0, 1}, {Work::backward, 1, 1}}};
  CHECK_THROWS_WITH_AS(pipeline::check_schedule(schedule), doctest::Contains("deadlock"), base::BugError);
}
