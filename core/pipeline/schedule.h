// A schedule as data: for each device, the ordered list of its tasks. It knows no device and no tensor.
//
// A schedule is a pure function of a ScheduleRequest; core/pipeline/schedules.def lists them. On every schedule a stage
// goes through the micro-batches in ascending order in each direction, so sums over micro-batches are the same sums.
// Schedules say nothing of recompute: with_recompute puts those tasks in, right before the backward that needs them, so
// that they run while the gradient is still on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// `backward` is the whole backward; a schedule that splits it has `backward_input` (the gradient that is sent on) and
/// `backward_weight` (the parameters' gradients) instead.
enum class Work : uint8_t { forward, recompute, backward, backward_input, backward_weight };
constexpr int k_works = 5;
/// F, R, B, B, W
char letter(Work work);
const char* name_of(Work work);

/// One entry of a row: this work, of this micro-batch, on this stage.
struct Task {
  Work work;
  int micro;
  int stage = 0;
  bool operator==(const Task&) const = default;
};

/// K devices with V stages each (V = 1: stage d is on device d). Stage s gets its input from s - 1.
struct Schedule {
  int devices = 0;
  int stages = 0;  // K x V
  int micro_batches = 0;
  std::vector<int> device_of;                      // by stage
  std::vector<std::vector<Task>> rows;             // rows[d]: what device d does, in order
  std::vector<std::vector<bool>> recomputes = {};  // by stage and micro-batch; empty: none (with_recompute fills it)
  bool recomputed(int stage, int micro) const {
    return !recomputes.empty() && recomputes[static_cast<size_t>(stage)][static_cast<size_t>(micro)];
  }
};

/// What a stage's tasks take for one micro-batch. Seconds, or any unit.
struct StageCost {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double recompute = 0;
};

struct ScheduleRequest {
  int devices = 1;                 // K
  int micro_batches = 1;           // M
  int chunks = 1;                  // V: stages on a device; schedules with a fixed V ignore it
  std::vector<StageCost> costs;    // by stage; empty: all equal. Only schedules that fill gaps look at them, and below
  double transfer = 0;             // from a stage to the next, or back; the unit of costs
  double memory_limit = 0;         // activations of whole devices that one may hold; 0: the schedule's own (K)
  double weight_memory_share = 1;  // of an activation, what stays from backward_input to backward_weight
};

/// A device's row task by task, for schedules that follow from counting alone: memory does not grow with M.
class RowStream {
 public:
  RowStream() = default;
  RowStream(const RowStream&) = delete;
  RowStream& operator=(const RowStream&) = delete;
  virtual ~RowStream() = default;
  /// False at the end.
  virtual bool next(Task& task) = 0;
};

/// One row of the list of schedules.
struct ScheduleType {
  const char* name;
  const char* summary;
  bool splits_backward;  // has backward_input and backward_weight tasks
  int chunks;            // V: 0 = as asked (2 or more), else this number and no other
  Schedule (*make)(const ScheduleRequest& request);
  /// Null for schedules that need to look at costs first. Stages go round the devices.
  std::unique_ptr<RowStream> (*stream)(const ScheduleRequest& request, int device);
};

const std::vector<ScheduleType>& schedule_types();
/// Throws ConfigError naming the known ones.
const ScheduleType& find_schedule(const std::string& name);
/// Throws ConfigError naming the setting when the schedule cannot be made so (V, M a multiple of K, a limit too small).
void check_request(const ScheduleType& type, const ScheduleRequest& request);

/// Which device holds stage s: s % K when stages go round the devices; `back` is the V-shape, there and back again.
std::vector<int> devices_of_stages(int devices, int chunks, bool back);

/// The same rows, with a recompute right before the backward of each micro-batch that `wanted` names.
Schedule with_recompute(Schedule schedule, const std::function<bool(int stage, int micro)>& wanted);

/// Between two works of a micro-batch on one stage (from the start of `from` to the end of `to`), how many micro-batches at
/// most are there at once (of those that count). 0 when the row has no such task; `to` backward_weight or backward_input may be a
/// whole backward.
int most_live(const Schedule& schedule, int stage, Work from, Work to, const std::function<bool(int micro)>& counts = {});

/// Throws BugError naming stage, position and task when a task is missing, doubled or out of order, or when the rows would
/// wait for each other for ever although no channel between devices holds a message: it stays with the stage that sends it,
/// one forward and one backward message at most, until the receiver has come to the task that takes it.
void check_schedule(const Schedule& schedule);

/// The rows as text, a line a device: F0 F1 .. R0 B0 .. ; with several stages a device, F0.2 is stage 2's.
std::string picture(const Schedule& schedule);

}  // namespace gpipe::pipeline
