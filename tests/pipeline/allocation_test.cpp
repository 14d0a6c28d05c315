// Steady state allocates nothing: after the first steps of a run, a training step takes no memory from the heap.
// Not under sanitizers: they bring operators of their own, which must not be mixed with these.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "core/pipeline/trace.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>

using namespace gpipe;

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

/// oneDNN allocates for itself inside each call; what it takes it gives back. Everything else is ours.
bool is_vendor(void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* allocate(size_t bytes, void* caller) {
  if (counting.load(std::memory_order_relaxed) && !is_vendor(caller)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

TEST_CASE("a training step in the steady state allocates nothing") {
  const test::SmallRun run{test::k_residual_network, {7, 6, 3}};
  const auto network = test::network_of(run.network, run.input, run.classes);
  for (const bool recompute : {true, false}) {
    pipeline::PipelineOptions options;
    options.partitions = 3;
    options.micro_batches = 4;
    options.rematerialize = recompute ? pipeline::Rematerialize::full : pipeline::Rematerialize::none;
    const auto plan = pipeline::make_plan(network, {options, run.batch_size, 1, {}});
    pipeline::Engine engine(*plan);
    base::Problems problems;
    const auto optimizer = train::make_optimizer(base::Tree::scalar("sgd"), "", problems);
    test::initialise(engine, *optimizer, 1);
    test::MadeBatch made(run, 0);
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(1, 0.01, true));
    const pipeline::MiniBatch batch = made.view(1);
    for (int i = 0; i < 2; ++i) engine.train(batch, rules, 1.0);
    allocations = 0;
    counting = true;
    for (int i = 0; i < 5; ++i) engine.train(batch, rules, 1.0);
    counting = false;
    CHECK(allocations == 0);
    pipeline::TaskRecorder recorder(plan->schedule);
    engine.set_task_observer(&recorder);
    counting = true;
    engine.train(batch, rules, 1.0);
    counting = false;
    CHECK(allocations == 0);  // nor while it is traced
    engine.set_task_observer(nullptr);
  }
}

TEST_CASE("the count sees an allocation of ours") {
  allocations = 0;
  counting = true;
  auto* number = new std::vector<int>(100);
  counting = false;
  CHECK(allocations >= 1);
  delete number;
}

#endif
