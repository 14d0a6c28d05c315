#include "tests/emulated_cuda/stream.h"

#include "tests/emulated_cuda/memory.h"

#include <sys/prctl.h>

namespace gpipe::emulated {

namespace {

thread_local const char* thread_task = "";

/// Most tasks start at once, some late, a few very late.
void pause_at_random(const CUstream_st& stream, uint64_t index) {
  const Options& options = state().options;  // changes only when no stream runs
  if (options.delay_us <= 0) return;
  const double kind = uniform(options.seed, stream.number * 2, index);
  if (kind >= 0.25) return;
  const double most = kind < 1.0 / 64 ? 20.0 * options.delay_us : options.delay_us;
  const double wanted = most * uniform(options.seed, stream.number * 2 + 1, index);
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(wanted));
}

/// Whether the task has work to do: it has a body, and the device is whole. Then device memory is open until it is done.
bool begin(const CUstream_st& stream, const Task& task) {
  Lock lock;
  if (task.failure != cudaSuccess) break_device(stream.device, task.failure);
  if (state().devices[static_cast<size_t>(stream.device)].sticky != cudaSuccess || !task.body) return false;
  use_memory();
  return true;
}

void wait_for(Record& record) {
  {
    Lock lock;
    record.finished.wait(lock.get(), [&] { return record.done; });
  }
  record.edge.acquire();
}

/// Whether the task used device memory.
bool run_task(CUstream_st& stream, Task& task) {
  task.from_host.acquire();
  if (task.wait) wait_for(*task.wait);
  thread_task = task.what.c_str();
  const bool works = begin(stream, task);
  if (works) task.body();
  task.body = {};
  thread_task = "";
  if (task.record) task.record->edge.release();
  return works;
}

/// The next task, or null when the stream was destroyed and all is done.
std::unique_ptr<Task> next_task(CUstream_st& stream) {
  Lock lock;
  stream.wake.wait(lock.get(), [&] { return !stream.queue.empty() || stream.closing; });
  if (stream.queue.empty()) {
    stream.ended = true;
    state().streams.erase(&stream);
    state().ended_streams.insert(&stream);
    state().stream_ended.notify_all();
    return nullptr;
  }
  std::unique_ptr<Task> task = std::move(stream.queue.front());
  stream.queue.pop_front();
  return task;
}

void work(CUstream_st& stream) {
  prctl(PR_SET_TIMERSLACK, 1000UL);
  uint64_t index = 0;
  while (const std::unique_ptr<Task> task = next_task(stream)) {
    pause_at_random(stream, index++);
    const bool used = run_task(stream, *task);
    stream.end.release();
    Lock lock;
    if (used) leave_memory();
    ++stream.done;
    if (!task->record) continue;
    task->record->time = std::chrono::steady_clock::now();
    task->record->done = true;
    task->record->finished.notify_all();
  }
}

std::vector<CUstream_st*> streams_of(int device) {
  std::vector<CUstream_st*> found;
  for (CUstream_st* stream : state().streams) {
    if (device < 0 || stream->device == device) found.push_back(stream);
  }
  return found;
}

/// Joins threads that ended. Without Lock.
void join_ended() {
  Quiet quiet;
  std::vector<std::thread> workers;
  {
    Lock lock;
    for (CUstream_st* stream : state().ended_streams) workers.push_back(std::move(stream->worker));
    state().ended_streams.clear();
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

const char* running_task() { return thread_task; }

std::unique_ptr<Task> make_task(std::string what, std::function<void()> body, std::shared_ptr<Record> record,
                                std::shared_ptr<Record> wait) {
  auto task = std::make_unique<Task>();
  task->what = std::move(what);
  task->body = std::move(body);
  task->record = std::move(record);
  task->wait = std::move(wait);
  task->failure = take_asynchronous_failure();
  task->from_host.release();
  return task;
}

void push(CUstream_st& stream, std::unique_ptr<Task> task, const std::vector<const void*>& touched) {
  ++stream.pushed;
  for (const void* pointer : touched) {
    if (Allocation* allocation = find_allocation(pointer)) allocation->uses[&stream] = {stream.pushed, task->what};
  }
  stream.queue.push_back(std::move(task));
  stream.wake.notify_one();
}

int device_of(cudaStream_t stream) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(stream);
  return found != state().objects.end() && found->second.kind == Kind::stream ? found->second.device : current_device();
}

CUstream_st* find_stream(const char* call, cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    report(std::string(call) + ": the default stream is not emulated, as it waits for all others: make a stream");
    return nullptr;
  }
  const Object* object = find_object(call, "stream", stream, Kind::stream);
  return object ? static_cast<CUstream_st*>(object->body.get()) : nullptr;
}

std::shared_ptr<Record> mark(CUstream_st& stream) {
  auto record = std::make_shared<Record>();
  auto task = make_task("a point the host waits for", {}, record);
  {
    Lock lock;
    if (!stream.ended) {
      push(stream, std::move(task));
      return record;
    }
    record->done = true;
  }
  stream.end.acquire();
  return record;
}

void wait_on_host(Record& record) {
  {
    Lock lock;
    ++state().host_waits;
  }
  wait_for(record);
  Lock lock;
  close_memory();
}

void wait_for_device(int device) {
  std::vector<CUstream_st*> streams;
  {
    Lock lock;
    ++state().host_waits;
    streams = streams_of(device);
  }
  std::vector<std::shared_ptr<Record>> records;
  for (CUstream_st* stream : streams) records.push_back(mark(*stream));
  for (const auto& record : records) wait_for(*record);
  Lock lock;
  close_memory();
}

bool passed(const CUstream_st& stream, uint64_t ticket) { return stream.done >= ticket; }

void stop_all_streams() {
  {
    Lock lock;
    for (CUstream_st* stream : state().streams) {
      stream->closing = true;
      stream->wake.notify_one();
    }
    state().stream_ended.wait(lock.get(), [] { return state().streams.empty(); });
  }
  join_ended();
}

namespace {

cudaError_t create_stream(cudaStream_t* stream, unsigned int flags) {
  if (!stream || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) {
    report_unlocked("cudaStreamCreateWithFlags: stream is null or the flags are unknown");
    return cudaErrorInvalidValue;
  }
  join_ended();
  auto body = std::make_shared<CUstream_st>();
  body->device = current_device();
  {
    Lock lock;
    state().streams.insert(body.get());
    add_object(body.get(), Kind::stream, body->device, body);
    body->number = state().objects[body.get()].number;
  }
  body->worker = std::thread(work, std::ref(*body));
  *stream = body.get();
  return cudaSuccess;
}

cudaError_t destroy_stream(cudaStream_t stream) {
  Lock lock;
  CUstream_st* body = find_stream("cudaStreamDestroy", stream);
  if (!body) return cudaErrorInvalidResourceHandle;
  end_object("cudaStreamDestroy", "stream", stream, Kind::stream);
  body->closing = true;  // its thread ends after the work that is there, and is joined by reset()
  body->wake.notify_one();
  return cudaSuccess;
}

}  // namespace

}  // namespace gpipe::emulated

CUstream_st::~CUstream_st() {
  if (worker.joinable()) worker.detach();
}

using namespace gpipe::emulated;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return runtime_call("cudaStreamCreateWithFlags", [&] { return create_stream(stream, flags); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const int device = device_of(stream);
  const Entry entry = enter("cudaStreamDestroy", device);
  if (entry.injected) return set_last_error(static_cast<cudaError_t>(entry.code));
  const cudaError_t error = destroy_stream(stream);  // a broken device gives its streams back too
  return set_last_error(error == cudaSuccess ? entry.device_error : error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const int device = device_of(stream);
  return runtime_call("cudaStreamSynchronize", device, [&] {
    CUstream_st* body = nullptr;
    {
      Lock lock;
      body = find_stream("cudaStreamSynchronize", stream);
    }
    if (!body) return cudaErrorInvalidResourceHandle;
    wait_on_host(*mark(*body));
    return device_error(device);
  });
}

cudaError_t cudaDeviceSynchronize() {
  const int device = current_device();
  return runtime_call("cudaDeviceSynchronize", [&] {
    wait_for_device(device);
    return device_error(device);
  });
}
