#include "core/pipeline/search.h"

#include "core/base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace gpipe::pipeline {
namespace {

constexpr int k_most_chunks = 4;

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> powers;
  for (int64_t power = 1; power <= most; power *= 2) powers.push_back(power);
  return powers;
}

bool keeps(const PipelineOptions& options, const char* name) {
  return std::find(options.search_keeps.begin(), options.search_keeps.end(), name) != options.search_keeps.end();
}

std::vector<int64_t> numbers_of_micro_batches(const SearchRequest& request) {
  if (keeps(request.options, "micro_batches")) return {request.options.micro_batches};
  if (!request.micro_batches.empty()) return request.micro_batches;
  const int64_t most =
      has_batch_statistics(request.network) ? std::max<int64_t>(1, request.batch_size / k_least_samples) : request.batch_size;
  return powers_of_two(std::min<int64_t>(most, 64));
}

std::vector<PipelineOptions> policies(const PipelineOptions& options) {
  if (keeps(options, "rematerialize")) return {options};
  std::vector<PipelineOptions> all;
  for (const Rematerialize policy :
       {Rematerialize::none, Rematerialize::automatic, Rematerialize::keep_first, Rematerialize::full}) {
    all.push_back(options);
    all.back().rematerialize = policy;
  }
  return all;
}

/// All settings that are tried with one K and M.
std::vector<PipelineOptions> variants(PipelineOptions options) {
  if (keeps(options, "schedule")) return policies(options);
  std::vector<PipelineOptions> all;
  const auto add = [&] {
    const auto more = policies(options);
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const ScheduleType& type : schedule_types()) {
    options.schedule = type.name;
    for (int chunks = 2; chunks <= (type.chunks == 0 ? k_most_chunks : 2); ++chunks) {
      options.chunks = type.chunks == 0 ? chunks : 0;
      options.activation_limit = 0;
      add();
      if (type.stream != nullptr) continue;
      options.activation_limit = 2.0 * static_cast<double>(options.partitions);
      add();
    }
    if (options.partitions == 1) break;  // on one device every schedule is the same work; gpipe stands for all
  }
  return all;
}

/// A list with one entry a device, cut to the first K.
void shorten(base::Tree& list, int64_t devices) {
  if (!list.is_list() || static_cast<int64_t>(list.items().size()) <= devices) return;
  list.items().resize(static_cast<size_t>(devices));
}

/// Candidates of one number of micro-batches share the planned operations: they are never run.
class Planner {
 public:
  Planner(const SearchRequest& request, int64_t micro_batches) : request_(request) {
    PipelineOptions unpiped = request.options;
    unpiped.partitions = 1;
    unpiped.micro_batches = micro_batches;
    unpiped.schedule = "gpipe";
    unpiped.chunks = 0;
    unpiped.balance = {};
    unpiped.rematerialize = Rematerialize::none;
    unpiped.speeds = {};
    unpiped.devices = {};
    unpiped.memory_limit = {};
    if (request.costs) costs_ = request.costs(micro_batches);
    unpiped_ = make_plan(request.network, {unpiped, request.batch_size, request.optimizer_slots, costs_});
    operations_ = unpiped_->stages.front().operations;
  }

  Candidate candidate(const PipelineOptions& options) const {
    const auto plan = make_plan(request_.network, {options, request_.batch_size, request_.optimizer_slots, costs_, &operations_});
    const Prediction prediction = predict(*plan);
    const MemoryVerdict memory = memory_verdict(*plan);
    const double seconds = std::max(prediction.step_seconds(), least_seconds(*plan, prediction, request_.cores));
    return {options, seconds, prediction.bubble(), memory.bytes, memory.limit};
  }

 private:
  const SearchRequest& request_;
  std::vector<NodeProfile> costs_;
  std::unique_ptr<Plan> unpiped_;
  std::vector<std::shared_ptr<graph::Operation>> operations_;
};

/// Times that differ by less than about half a percent are equal: no prediction is as good as that.
int64_t rank(double seconds) { return std::llround(std::log(std::max(seconds, 1e-12)) * 200); }

bool better(const Candidate& a, const Candidate& b) {
  if (a.fits() != b.fits()) return a.fits();
  if (!a.fits()) return a.excess() < b.excess();
  return std::tuple(rank(a.step_seconds), a.largest_bytes, a.options.partitions, a.step_seconds) <
         std::tuple(rank(b.step_seconds), b.largest_bytes, b.options.partitions, b.step_seconds);
}

/// The same time in the same memory: nobody needs both.
bool same(const Candidate& a, const Candidate& b) {
  return a.options.partitions == b.options.partitions && a.options.micro_batches == b.options.micro_batches &&
         a.step_seconds == b.step_seconds && a.largest_bytes == b.largest_bytes;
}

}  // namespace

std::vector<Candidate> search(const SearchRequest& request) {
  std::vector<Candidate> candidates;
  for (const int64_t micro_batches : numbers_of_micro_batches(request)) {
    const Planner planner(request, micro_batches);
    const int fewest = keeps(request.options, "partitions") ? request.devices : 1;
    for (int devices = fewest; devices <= request.devices; ++devices) {
      PipelineOptions options = request.options;
      options.partitions = devices;
      options.micro_batches = micro_batches;
      options.balance = {};
      shorten(options.speeds, devices);
      shorten(options.memory_limit, devices);
      shorten(options.devices, devices);
      for (const PipelineOptions& variant : variants(options)) {
        try {
          candidates.push_back(planner.candidate(variant));
        } catch (const base::ConfigError&) {  // no such plan
        }
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), better);
  candidates.erase(std::unique(candidates.begin(), candidates.end(), same), candidates.end());
  return candidates;
}

MemoryVerdict memory_verdict(const Plan& plan) {
  std::vector<int64_t> bytes(static_cast<size_t>(plan.schedule.devices), 0);
  for (const StagePlan& stage : plan.stages)
    bytes[static_cast<size_t>(stage.device)] += static_cast<int64_t>(stage.memory.total());
  // A device without a limit has all the room there is: it is the fullest only among its like.
  const auto room = [](const MemoryVerdict& of) {
    return of.limit == 0 ? std::numeric_limits<int64_t>::max() - of.bytes : of.limit - of.bytes;
  };
  MemoryVerdict verdict;
  for (size_t device = 0; device < bytes.size(); ++device) {
    const MemoryVerdict of{static_cast<int>(device), bytes[device], plan.devices.memory_limits[device]};
    if (device == 0 || room(of) < room(verdict)) verdict = of;
  }
  return verdict;
}

bool has_batch_statistics(const graph::Network& network) {
  return std::any_of(network.nodes.begin(), network.nodes.end(), [](const graph::Node& node) { return !node.buffers.empty(); });
}

double least_seconds(const Plan& plan, const Prediction& prediction, int cores) {
  const int64_t threads = plan.options.threads;
  if (plan.options.device != "cpu" || cores == 0 || plan.schedule.devices * threads <= cores) return 0;
  double work = 0;
  for (const DeviceTimes& device : prediction.simulation.devices) work += device.busy;
  return work * static_cast<double>(threads) / cores;
}

}  // namespace gpipe::pipeline
