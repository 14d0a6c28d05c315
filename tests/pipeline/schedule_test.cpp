// Schedules as data: their rows, legality and freedom from deadlock, live counts, refusals.
#include "core/pipeline/schedule.h"

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/pipeline/made_schedule.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

using namespace gpipe;
using pipeline::Schedule;
using pipeline::Work;
using test::made;

namespace {

int live(const Schedule& schedule, int stage) {
  return pipeline::most_live(schedule, stage, Work::forward, Work::backward_input);
}

void check_all(const std::vector<int>& devices, int most_micro_batches, const std::function<bool(int, int)>& wanted) {
  for (const auto& type : pipeline::schedule_types())
    for (const int k : devices)
      for (int m = 1; m <= most_micro_batches; ++m) {
        if (!test::can_have(type, k, m) || (type.stream == nullptr && !wanted(k, m))) continue;
        CAPTURE(fmt::format("{} K={} M={}", type.name, k, m));
        const Schedule schedule = made(type, test::request_for(type, k, m), false);
        REQUIRE_NOTHROW(pipeline::check_schedule(schedule));
        REQUIRE_NOTHROW(pipeline::check_schedule(pipeline::with_recompute(schedule, [](int, int) { return true; })));
      }
}

std::vector<int> up_to(int last) {
  std::vector<int> all;
  for (int i = 1; i <= last; ++i) all.push_back(i);
  return all;
}

}  // namespace

TEST_CASE("the rows of small schedules are those of the papers' figures") {
  CHECK(pipeline::picture(made("gpipe", 2, 3)) == "device 0   F0 F1 F2 B0 B1 B2\ndevice 1   F0 F1 F2 B0 B1 B2\n");
  CHECK(pipeline::picture(made("gpipe", 2, 3, true)) ==
        "device 0   F0 F1 F2 R0 B0 R1 B1 R2 B2\ndevice 1   F0 F1 F2 R0 B0 R1 B1 R2 B2\n");
  CHECK(pipeline::picture(made("1f1b", 2, 3)) == "device 0   F0 F1 B0 F2 B1 B2\ndevice 1   F0 B0 F1 B1 F2 B2\n");
  CHECK(pipeline::picture(made("zb_h1", 2, 3)) ==
        "device 0   F0 F1 B0 W0 F2 B1 W1 B2 W2\ndevice 1   F0 B0 F1 B1 W0 F2 B2 W1 W2\n");
  CHECK(pipeline::picture(made("zb_h2", 2, 4)) ==
        "device 0   F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3\ndevice 1   F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3\n");
  auto two_chunks = test::request_for(pipeline::find_schedule("interleaved"), 2, 2, 2);
  CHECK(pipeline::picture(pipeline::find_schedule("interleaved").make(two_chunks)) ==
        "device 0   F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0\ndevice 1   F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1\n");
}

TEST_CASE("every schedule passes the checker for K=1..16 and M=1..32, with and without recompute") {
  check_all(up_to(16), 32, [](int, int) { return true; });
}

TEST_SUITE("slow") {
  // Those that look at costs try several rows each. Of these: every K with M = K, 2K and every 32nd; nine K with every 4th M.
  TEST_CASE("every schedule passes the checker for K=1..64 and M=1..256, with and without recompute") {
    const auto sampled = [](int value) { return value <= 4 || value % 16 == 0 || value == 63; };
    check_all(up_to(64), 256, [&](int k, int m) { return sampled(k) ? m % 4 == k % 4 : m == k || m == 2 * k || m % 32 == 0; });
  }
}

TEST_CASE("schedules that look at costs pass the checker for any costs, transfer and memory limit") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    for (const auto& type : pipeline::schedule_types()) {
      if (type.stream != nullptr) continue;
      auto request = test::request_for(type, 1 + static_cast<int>(random.below(0, 8)), 1 + static_cast<int>(random.below(1, 20)));
      for (int s = 0; s < request.devices * request.chunks; ++s) {
        const auto cost = [&](int which) {  // from nothing to eight times the others
          return random.uniform(100 + 4 * s + which) < 0.1F ? 0.0 : std::exp2(6 * random.uniform(400 + 4 * s + which) - 3);
        };
        request.costs.push_back({cost(0), cost(1), cost(2), cost(3)});
      }
      request.transfer = random.uniform(2);
      request.memory_limit = 1 + 2.0 * request.devices * random.uniform(3);
      request.weight_memory_share = random.uniform(4);
      CAPTURE(fmt::format("{} seed {} K={} M={}", type.name, seed, request.devices, request.micro_batches));
      const Schedule schedule = made(type, request, false);
      CHECK_NOTHROW(pipeline::check_schedule(schedule));
      // On a device, activations and what waits for weight gradients stay within the limit.
      const double part = 1.0 / request.chunks;
      for (const auto& row : schedule.rows) {
        double held = 0;
        double most = 0;
        for (const auto& task : row) {
          held += part * (task.work == Work::forward          ? 1
                          : task.work == Work::backward_input ? request.weight_memory_share - 1
                                                              : -request.weight_memory_share);
          most = std::max(most, held);
        }
        CHECK(most <= request.memory_limit + 1e-6);
      }
    }
  }
}

TEST_CASE("live counts are the closed forms") {
  for (const int k : {1, 2, 3, 5, 8})
    for (const int m : {1, 2, 4, 8, 17}) {
      CAPTURE(fmt::format("K={} M={}", k, m));
      for (int s = 0; s < k; ++s) {
        CHECK(live(made("gpipe", k, m), s) == m);
        CHECK(live(made("1f1b", k, m), s) == std::min(k - s, m));
        CHECK(live(made("zb_h1", k, m), s) == std::min(k - s, m));
        CHECK(live(made("zb_h2", k, m), s) == std::min(2 * (k - 1 - s) + 1, m));
        const Schedule recomputed = made("gpipe", k, m, true);
        CHECK(pipeline::most_live(recomputed, s, Work::forward, Work::backward) == m);
        CHECK(pipeline::most_live(recomputed, s, Work::recompute, Work::backward) == 1);
      }
    }
}

TEST_CASE("recompute is put in only where it is wanted, right before the backward") {
  const auto& type = pipeline::find_schedule("1f1b");
  const Schedule schedule = pipeline::with_recompute(type.make(test::request_for(type, 2, 3)),
                                                     [](int stage, int micro) { return stage == 0 && micro > 0; });
  CHECK(pipeline::picture(schedule) == "device 0   F0 F1 B0 F2 R1 B1 R2 B2\ndevice 1   F0 B0 F1 B1 F2 B2\n");
  CHECK_NOTHROW(pipeline::check_schedule(schedule));
}

TEST_CASE("there-and-back puts the last stage beside the first") {
  CHECK(pipeline::devices_of_stages(3, 2, true) == std::vector<int>{0, 1, 2, 2, 1, 0});
  CHECK(pipeline::devices_of_stages(3, 2, false) == std::vector<int>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("an unknown schedule is refused with the known ones") {
  CHECK_THROWS_WITH_AS(pipeline::find_schedule("gpip"), doctest::Contains("gpipe, 1f1b, interleaved"), base::ConfigError);
}

TEST_CASE("what a schedule cannot do is refused with the setting's name") {
  pipeline::ScheduleRequest request;
  request.devices = 4;
  request.micro_batches = 6;
  request.chunks = 2;
  const auto check = [&](const char* name) { pipeline::check_request(pipeline::find_schedule(name), request); };
  CHECK_THROWS_WITH_AS(check("1f1b"), doctest::Contains("pipeline.chunks"), base::ConfigError);
  CHECK_THROWS_WITH_AS(check("interleaved"),
                       "pipeline.micro_batches: schedule interleaved takes a multiple of the 4 devices, found 6; 8 would do",
                       base::ConfigError);
  request.micro_batches = 8;
  CHECK_NOTHROW(check("interleaved"));
  CHECK_NOTHROW(check("zb_v"));
  request.chunks = 1;
  CHECK_THROWS_WITH_AS(check("interleaved"), doctest::Contains("pipeline.chunks"), base::ConfigError);
  CHECK_NOTHROW(check("zb_v"));
  request.memory_limit = 0.5;
  CHECK_THROWS_WITH_AS(check("zb_auto"), doctest::Contains("pipeline.activation_limit"), base::ConfigError);
  CHECK_NOTHROW(check("1f1b"));
}
