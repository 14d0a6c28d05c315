#include "core/pipeline/plan.h"

#include "core/device/peers.h"
#include "core/pipeline/boundaries.h"
#include "core/pipeline/estimate.h"
#include "core/pipeline/gpu_reserve.h"
#include "core/pipeline/plan_parts.h"

#include <algorithm>
#include <limits>
#include <sched.h>

namespace gpipe::pipeline {

MicroBatches::MicroBatches(int64_t mini, int64_t count) : mini_batch(mini) {
  if (count < 1 || count > mini)
    throw base::ConfigError("pipeline.micro_batches: {} micro-batches of a mini-batch of {} samples; use 1 to {}", count, mini,
                            mini);
  int64_t first = 0;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(mini / count + (i < mini % count ? 1 : 0));
    first_sample.push_back(first);
    first += sizes.back();
  }
}

device::Batches MicroBatches::distinct() const {
  device::Batches out{sizes.front()};
  if (sizes.back() != sizes.front()) out.push_back(sizes.back());
  return out;
}

int Plan::stage_of(int node) const {
  int stage = 0;
  while (node >= boundaries[static_cast<size_t>(stage) + 1]) ++stage;
  return stage;
}

int process_of(const PipelineOptions& options, int device) {
  return options.peers ? static_cast<int>(device * options.peers->size() / options.partitions) : 0;
}

bool has_device(const PipelineOptions& options, int device) {
  return !options.peers || process_of(options, device) == options.peers->rank();
}

int Plan::process_of(int device) const { return pipeline::process_of(options, device); }

bool Plan::is_here(int device) const { return has_device(options, device); }

bool Plan::is_remote(int stage, int other) const {
  const auto& device_of = schedule.device_of;
  return process_of(device_of[static_cast<size_t>(stage)]) != process_of(device_of[static_cast<size_t>(other)]);
}

bool Plan::reaches(int stage, int other) const {
  const auto name_of = [this](int of) -> const std::string& {
    return devices.names[static_cast<size_t>(schedule.device_of[static_cast<size_t>(of)])];
  };
  return !is_remote(stage, other) && name_of(stage) == name_of(other);
}

size_t Plan::arena_bytes() const {
  size_t sum = 0;
  for (const StagePlan& stage : stages) sum += stage.memory.total();
  return sum;
}

size_t Plan::bytes_sent(const EdgePlan& edge) const {
  const graph::Value& value = network.values[static_cast<size_t>(edge.value)];
  return static_cast<size_t>(value.shape.elements() * micro_batches.mini_batch) * tensor::size_of(value.dtype);
}

std::vector<int> own_cores() {
  cpu_set_t allowed;
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed)) all.push_back(core);
  return all;
}

int usable_cores(const PipelineOptions& options) {
  return static_cast<int>(own_cores().size()) * (options.cores_apart ? options.peers->size() : 1);
}

std::vector<int> cores_of_device(const PipelineOptions& options, int device) {
  const std::vector<int> all = own_cores();
  const int devices = static_cast<int>(options.partitions), threads = static_cast<int>(options.threads);
  int first = 0, count = devices;
  if (options.cores_apart) {
    while (!has_device(options, first)) ++first;
    for (count = 1; first + count < devices && has_device(options, first + count);) ++count;
  }
  if (static_cast<int>(all.size()) < count * threads) return {};
  const auto begin = all.begin() + (device - first) * threads;
  return {begin, begin + threads};
}

namespace {

/// Memory of each of the pipeline's devices, of the smallest: those that are the same machine or GPU share it.
int64_t memory_of(const std::vector<std::string>& names, const PipelineOptions& options) {
  const int64_t of_device = k_reserve_of_device + (options.peers ? k_reserve_of_links : 0);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && names[i] == names[i - 1]) continue;  // seen
    const device::DeviceInfo info = device::open_backend(names[i], {.precision = options.precision})->info();
    int64_t sharing = std::count(names.begin(), names.end(), names[i]);
    if (info.kind == "cpu" && options.peers) sharing *= options.peers->on_this_machine();
    const int64_t all = info.free_bytes > 0 ? info.free_bytes - k_reserve_of_gpu - sharing * of_device : info.memory_bytes;
    least = std::min(least, std::max<int64_t>(all, sharing) / sharing);
  }
  return least;
}

DeviceList devices_of(const PipelineOptions& options) {
  base::Problems problems;
  const int devices = static_cast<int>(options.partitions);
  const std::vector<std::string> names = device_names(options, devices, problems);
  problems.throw_if_any();
  // Of this process; the names of others' devices may mean nothing here.
  std::vector<std::string> mine;
  for (int device = 0; device < devices; ++device)
    if (has_device(options, device)) mine.push_back(names[static_cast<size_t>(device)]);
  const int64_t memory = options.device_memory > 0 ? options.device_memory : memory_of(mine, options);
  DeviceList list = read_devices(options, devices, memory, problems);
  list.names = names;
  list.own_memory = memory;
  problems.throw_if_any();
  return list;
}

}  // namespace

std::unique_ptr<Plan> make_plan(const graph::Network& network, const PlanRequest& request) {
  const PipelineOptions& options = request.options;
  MicroBatches micro_batches(request.batch_size, options.micro_batches);
  const ScheduleType& type = find_schedule(options.schedule);
  ScheduleRequest rows{.devices = static_cast<int>(options.partitions),
                       .micro_batches = micro_batches.count(),
                       .chunks = options.chunks > 0 ? static_cast<int>(options.chunks) : std::max(1, type.chunks),
                       .memory_limit = options.activation_limit};
  if (type.chunks == 0 && options.chunks == 0) rows.chunks = 2;
  check_request(type, rows);
  check_stages(network, rows.devices * rows.chunks, rows.chunks);
  const device::Batches batches = micro_batches.distinct();
  Outline outline{network, request, type, rows, std::move(micro_batches), request.costs, devices_of(options), type.make(rows)};
  if (outline.costs.empty()) outline.costs = estimated_profile(network, {}, batches.front(), request.optimizer_slots);
  if (request.operations != nullptr) return assemble(outline, cut(outline, *request.operations), request.operations);
  int mine = 0;
  while (!has_device(options, mine)) ++mine;
  const auto backend = device::open_backend(outline.devices.names[static_cast<size_t>(mine)],
                                            {static_cast<int>(options.threads), {}, options.precision, options.algorithms});
  const Operations look = plan_operations(network, *backend, batches, 0, network.loss_node() + 1);
  return assemble(outline, cut(outline, look), nullptr);
}

}  // namespace gpipe::pipeline
