// The checker sees what is wrong with a schedule, and only that: kinds of faults, each in many places of every schedule.
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/pipeline/schedule.h"
#include "tests/pipeline/made_schedule.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

using namespace gpipe;
using pipeline::Schedule;
using pipeline::Task;
using pipeline::Work;
using test::made;

namespace {

/// Draws by counting, so that a seed is a fault.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed, base::Purpose::test) {}
  size_t below(size_t bound) { return random_.below(drawn_++, static_cast<uint32_t>(bound)); }

 private:
  base::Philox random_;
  uint64_t drawn_ = 0;
};

using Row = std::vector<Task>;

bool is_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

auto place(Row& row, size_t at) { return row.begin() + static_cast<std::ptrdiff_t>(at); }

Row& any_row(Schedule& schedule, Dice& dice) { return schedule.rows[dice.below(schedule.rows.size())]; }

Task& any_task(Schedule& schedule, Dice& dice) {
  Row& row = any_row(schedule, dice);
  return row[dice.below(row.size())];
}

size_t find(const Row& row, Work work, int micro, int stage) {
  return static_cast<size_t>(std::find(row.begin(), row.end(), Task{work, micro, stage}) - row.begin());
}

void move_task(Row& row, size_t from, size_t to) {  // to stand where `to` stands now
  if (from < to)
    std::rotate(place(row, from), place(row, from + 1), place(row, to + 1));
  else
    std::rotate(place(row, to), place(row, from), place(row, from + 1));
}

/// A kind of fault; `put` says whether there was a place for it. Every schedule that it changed is an illegal one.
struct Fault {
  const char* name;
  bool (*put)(Schedule& schedule, Dice& dice);
};

bool dropped(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  row.erase(place(row, dice.below(row.size())));
  return true;
}

bool doubled(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  const Task task = row[dice.below(row.size())];
  row.insert(place(row, dice.below(row.size() + 1)), task);
  return true;
}

bool swapped(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  Task& one = row[dice.below(row.size())];
  Task& other = row[dice.below(row.size())];
  if (one.work != other.work || one.stage != other.stage || one.micro == other.micro) return false;
  std::swap(one, other);
  return true;
}

bool wrong_micro_batch(Schedule& s, Dice& dice) {
  Task& task = any_task(s, dice);
  const int before = task.micro;
  task.micro = static_cast<int>(dice.below(static_cast<size_t>(s.micro_batches)));
  return task.micro != before;
}

bool no_such_micro_batch(Schedule& s, Dice& dice) {
  any_task(s, dice).micro = dice.below(2) == 0 ? s.micro_batches : -1;
  return true;
}

bool wrong_stage(Schedule& s, Dice& dice) {
  Task& task = any_task(s, dice);
  const int before = task.stage;
  task.stage = static_cast<int>(dice.below(static_cast<size_t>(s.stages)));
  return task.stage != before;
}

bool no_such_stage(Schedule& s, Dice& dice) {
  any_task(s, dice).stage = dice.below(2) == 0 ? s.stages : -1;
  return true;
}

bool wrong_work(Schedule& s, Dice& dice) {
  Task& task = any_task(s, dice);
  const Work before = task.work;
  task.work = static_cast<Work>(dice.below(pipeline::k_works));
  return task.work != before;
}

bool on_another_device(Schedule& s, Dice& dice) {
  Row& from = any_row(s, dice);
  Row& to = any_row(s, dice);
  if (&from == &to) return false;
  const size_t at = dice.below(from.size());
  to.insert(place(to, dice.below(to.size() + 1)), from[at]);
  from.erase(place(from, at));
  return true;
}

bool rows_exchanged(Schedule& s, Dice& dice) {
  Row& one = any_row(s, dice);
  Row& other = any_row(s, dice);
  std::swap(one, other);
  return &one != &other;
}

bool row_backwards(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  std::reverse(row.begin(), row.end());
  return true;
}

bool row_cut_short(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  row.resize(dice.below(row.size()));
  return true;
}

bool row_missing(Schedule& s, Dice&) {
  s.rows.pop_back();
  return true;
}

bool stage_elsewhere(Schedule& s, Dice& dice) {
  int& device = s.device_of[dice.below(s.device_of.size())];
  const int before = device;
  device = static_cast<int>(dice.below(static_cast<size_t>(s.devices) + 1));  // or one that does not exist
  return device != before;
}

/// The first task of a pair comes right behind the second.
bool reversed(Schedule& s, Dice& dice, Work first, bool (*second)(Work)) {
  Row& row = any_row(s, dice);
  const Task task = row[dice.below(row.size())];
  if (!second(task.work)) return false;
  const size_t at = find(row, first, task.micro, task.stage);
  if (at == row.size()) return false;
  move_task(row, at, find(row, task.work, task.micro, task.stage));
  return true;
}
bool forward_behind_backward(Schedule& s, Dice& dice) { return reversed(s, dice, Work::forward, is_backward); }
bool recompute_behind_backward(Schedule& s, Dice& dice) { return reversed(s, dice, Work::recompute, is_backward); }
bool weight_before_input(Schedule& s, Dice& dice) {
  return reversed(s, dice, Work::backward_input, [](Work work) { return work == Work::backward_weight; });
}

bool recompute_dropped(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  const size_t at = dice.below(row.size());
  if (row[at].work != Work::recompute) return false;
  row.erase(place(row, at));
  return true;
}

bool recompute_unasked(Schedule& s, Dice& dice) {
  Row& row = any_row(s, dice);
  const size_t at = dice.below(row.size());
  const Task task = row[at];
  if (!is_backward(task.work) || s.recomputed(task.stage, task.micro)) return false;
  row.insert(place(row, at), {Work::recompute, task.micro, task.stage});
  return true;
}

bool halves_joined(Schedule& s, Dice& dice) {  // whole on one micro-batch, in halves on the others
  Row& row = any_row(s, dice);
  const Task task = row[dice.below(row.size())];
  if (task.work != Work::backward_weight || s.micro_batches == 1) return false;
  row.erase(place(row, find(row, Work::backward_weight, task.micro, task.stage)));
  row[find(row, Work::backward_input, task.micro, task.stage)].work = Work::backward;
  return true;
}

/// Stage s goes back with m before it sends forward n, which stage s + 1 wants before it goes back with m. Each row is in
/// order; it is their messages that go in a circle.
bool message_circle(Schedule& s, Dice& dice) {
  if (s.stages < 2) return false;
  const int stage = static_cast<int>(dice.below(static_cast<size_t>(s.stages - 1)));
  Row& row = s.rows[static_cast<size_t>(s.device_of[static_cast<size_t>(stage)])];
  const Row& next = s.rows[static_cast<size_t>(s.device_of[static_cast<size_t>(stage + 1)])];
  if (&row == &next) return false;
  const auto first_back = [](const Row& r, int of) {
    return static_cast<size_t>(
        std::find_if(r.begin(), r.end(), [&](const Task& t) { return is_backward(t.work) && t.stage == of && t.micro == 0; }) -
        r.begin());
  };
  const int n = 1 + static_cast<int>(dice.below(4));
  const size_t sent = find(row, Work::forward, n, stage);
  const size_t taken = find(next, Work::forward, n, stage + 1);
  if (sent == row.size() || taken > first_back(next, stage + 1) || sent > first_back(row, stage)) return false;
  move_task(row, first_back(row, stage), sent);
  if (s.recomputed(stage, 0)) move_task(row, find(row, Work::recompute, 0, stage), sent);
  return true;
}

const Fault k_faults[] = {
    {"a task dropped", dropped},
    {"a task doubled", doubled},
    {"two micro-batches swapped", swapped},
    {"a task of the wrong micro-batch", wrong_micro_batch},
    {"a task of no micro-batch", no_such_micro_batch},
    {"a task of the wrong stage", wrong_stage},
    {"a task of no stage", no_such_stage},
    {"a task of the wrong work", wrong_work},
    {"a task on another device", on_another_device},
    {"two devices' rows exchanged", rows_exchanged},
    {"a row backwards", row_backwards},
    {"a row cut short", row_cut_short},
    {"a row missing", row_missing},
    {"a stage on another device", stage_elsewhere},
    {"a forward behind its backward", forward_behind_backward},
    {"a weight gradient before the input's", weight_before_input},
    {"a recompute behind its backward", recompute_behind_backward},
    {"a recompute dropped", recompute_dropped},
    {"a recompute nobody asked for", recompute_unasked},
    {"whole and split backwards mixed", halves_joined},
    {"messages in a circle", message_circle},
};

/// The checker's walk in other words: every task and what must be over before it; a legal schedule has no circle there.
/// Before a task come the one before it in its row; the one whose message it takes; and, as the message of the same stage and
/// direction before it must be taken, all that its receiver does before it takes that.
bool goes_in_a_circle(const Schedule& schedule) {
  std::map<std::tuple<bool, int, int>, std::pair<size_t, size_t>> where;  // forward, stage, micro: device and place
  std::vector<size_t> first{0};
  for (size_t device = 0; device < schedule.rows.size(); ++device) {
    for (size_t at = 0; at < schedule.rows[device].size(); ++at) {
      const Task& task = schedule.rows[device][at];
      if (task.work == Work::forward || is_backward(task.work))
        where[{task.work == Work::forward, task.stage, task.micro}] = {device, at};
    }
    first.push_back(first.back() + schedule.rows[device].size());
  }
  std::vector<std::vector<size_t>> after(first.back());
  std::vector<int> waits(first.back(), 0);
  const auto needs = [&](size_t task, size_t earlier) {
    after[earlier].push_back(task);
    ++waits[task];
  };
  for (const auto& [key, spot] : where) {
    const auto& [forward, stage, micro] = key;
    const size_t task = first[spot.first] + spot.second;
    if (const auto from = where.find({forward, forward ? stage - 1 : stage + 1, micro}); from != where.end())
      needs(task, first[from->second.first] + from->second.second);
    const auto taken = where.find({forward, forward ? stage + 1 : stage - 1, micro - 1});
    if (taken != where.end() && taken->second.first != spot.first && taken->second.second > 0)
      needs(task, first[taken->second.first] + taken->second.second - 1);
  }
  for (size_t device = 0; device < schedule.rows.size(); ++device)
    for (size_t at = 1; at < schedule.rows[device].size(); ++at) needs(first[device] + at, first[device] + at - 1);
  std::vector<size_t> ready;
  for (size_t task = 0; task < waits.size(); ++task)
    if (waits[task] == 0) ready.push_back(task);
  size_t over = 0;
  for (; over < ready.size(); ++over)
    for (const size_t task : after[ready[over]])
      if (--waits[task] == 0) ready.push_back(task);
  return over < waits.size();
}

bool passes(const Schedule& schedule) {
  try {
    pipeline::check_schedule(schedule);
    return true;
  } catch (const base::BugError&) { return false; }
}

Schedule any_schedule(const pipeline::ScheduleType& type, Dice& dice, bool recompute) {
  const int devices = 2 + static_cast<int>(dice.below(4));
  const int micro_batches =
      type.chunks == 0 ? devices * (1 + static_cast<int>(dice.below(2))) : 2 + static_cast<int>(dice.below(9));
  return made(type, test::request_for(type, devices, micro_batches, 2), recompute);
}

}  // namespace

TEST_CASE("each kind of fault is found wherever it is put, in every schedule") {
  for (const Fault& fault : k_faults) {
    int found = 0;
    for (const auto& type : pipeline::schedule_types())
      for (uint64_t seed = 0; seed < 120; ++seed) {
        Dice dice(seed);
        Schedule schedule = any_schedule(type, dice, seed % 2 == 1);
        if (!fault.put(schedule, dice)) continue;
        CAPTURE(fmt::format("{} in {}, seed {}\n{}", fault.name, type.name, seed, pipeline::picture(schedule)));
        CHECK_THROWS_AS(pipeline::check_schedule(schedule), base::BugError);
        ++found;
      }
    CAPTURE(fault.name);
    CHECK(found >= 20);
  }
}

TEST_CASE("tasks moved at random are refused exactly when they are out of order or go in a circle") {
  int legal = 0;
  int circles = 0;
  for (const auto& type : pipeline::schedule_types())
    for (uint64_t seed = 0; seed < 400; ++seed) {
      Dice dice(seed);
      Schedule schedule = any_schedule(type, dice, seed % 2 == 1);
      for (size_t moves = 1 + dice.below(3); moves > 0; --moves) {
        Row& row = any_row(schedule, dice);
        const size_t from = dice.below(row.size());
        move_task(row, from, std::min(row.size() - 1, from + dice.below(6)));
      }
      // Order within a row, by comparing all pairs.
      bool ordered = true;
      for (const Row& row : schedule.rows)
        for (size_t i = 0; i < row.size(); ++i)
          for (size_t j = i + 1; j < row.size(); ++j) {
            const Task& a = row[i];
            const Task& b = row[j];
            if (a.stage != b.stage) continue;
            if (a.work == b.work && a.micro > b.micro) ordered = false;
            if (a.micro == b.micro && static_cast<int>(a.work) > static_cast<int>(b.work)) ordered = false;
          }
      const bool circle = ordered && goes_in_a_circle(schedule);
      legal += ordered && !circle ? 1 : 0;
      circles += circle ? 1 : 0;
      CAPTURE(fmt::format("{} seed {}\n{}", type.name, seed, pipeline::picture(schedule)));
      CHECK(passes(schedule) == (ordered && !circle));
    }
  CHECK(legal > 100);
  CHECK(circles > 20);
}

TEST_CASE("rows that wait for each other for ever are found") {
  // Stage 0 wants to go back before it has sent micro-batch 1; stage 1 wants all forwards first.
  Schedule schedule{2, 2, 2, {0, 1}, {}};
  schedule.rows = {{{Work::forward, 0}, {Work::backward, 0}, {Work::forward, 1}, {Work::backward, 1}},
                   {{Work::forward, 0, 1}, {Work::forward, 1, 1}, {Work::backward, 0, 1}, {Work::backward, 1, 1}}};
  CHECK_THROWS_WITH_AS(pipeline::check_schedule(schedule), doctest::Contains("deadlock"), base::BugError);
}

TEST_CASE("a recompute that others, done ahead of time, seem to cover is missed") {
  Schedule schedule = pipeline::with_recompute(made("gpipe", 1, 3), [](int, int micro) { return micro > 0; });
  CHECK(pipeline::picture(schedule) == "device 0   F0 F1 F2 B0 R1 B1 R2 B2\n");
  Row& row = schedule.rows[0];
  move_task(row, 6, 5);
  CHECK_NOTHROW(pipeline::check_schedule(schedule));  // R1 R2 B1 B2
  row.erase(place(row, 4));
  CHECK_THROWS_WITH_AS(pipeline::check_schedule(schedule), doctest::Contains("micro-batch 1 is due"), base::BugError);
}

TEST_CASE("rows that would need a channel to hold a message are found") {
  // Stage 0 sends a fourth forward before it takes the first gradient; stage 1 takes the second forward after that gradient.
  Schedule schedule{2, 2, 4, {0, 1}, {}};
  for (const int stage : {0, 1}) {
    Row& row = schedule.rows.emplace_back();
    for (int forward = 0, backward = 0; backward < 4;)
      if (forward < 4 && forward <= backward + (stage == 0 ? 3 : 0))
        row.push_back({Work::forward, forward++, stage});
      else
        row.push_back({Work::backward, backward++, stage});
  }
  CHECK_THROWS_WITH_AS(pipeline::check_schedule(schedule), doctest::Contains("deadlock"), base::BugError);
}
