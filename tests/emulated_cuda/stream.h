// Streams: a thread each that runs tasks in order, after random delays; records, and the waits for them.
#pragma once

#include "tests/emulated_cuda/state.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpipe::emulated {

/// One cudaEventRecord, or the point up to which a synchronisation waits.
struct Record {
  Edge edge;
  bool done = false;
  std::chrono::steady_clock::time_point time;
  std::condition_variable finished;
};

struct Task {
  std::string what;
  std::function<void()> body;
  std::shared_ptr<Record> wait;       // to be done before
  std::shared_ptr<Record> record;     // done with this task
  cudaError_t failure = cudaSuccess;  // breaks the device in place of the body
  Edge from_host;
};

/// Work to be put on a stream, with what the calling thread did before. Called outside of Quiet.
std::unique_ptr<Task> make_task(std::string what, std::function<void()> body = {}, std::shared_ptr<Record> record = {},
                                std::shared_ptr<Record> wait = {});

/// Puts it at the end of the stream; `touched` are pointers into allocations that it uses until it is done. With Lock.
void push(CUstream_st& stream, std::unique_ptr<Task> task, const std::vector<const void*>& touched = {});

/// The device of a stream, or the current one if it is none. Without Lock.
int device_of(cudaStream_t stream);

/// The stream of a handle, or null after a report. With Lock.
CUstream_st* find_stream(const char* call, cudaStream_t stream);

/// Makes the stream tell when it comes to this point. Without Lock.
std::shared_ptr<Record> mark(CUstream_st& stream);
/// Blocks the host until it is done, and orders what follows after it. Without Lock.
void wait_on_host(Record& record);
/// Blocks the host until all streams of the device are idle; ordered after them. Without Lock.
void wait_for_device(int device);

/// Whether the stream did the task with this ticket. With Lock.
bool passed(const CUstream_st& stream, uint64_t ticket);

/// Ends the threads of all streams after their work. Without Lock.
void stop_all_streams();

/// What the calling thread, a stream's, is running: for messages. "" on the host.
const char* running_task();

}  // namespace gpipe::emulated

struct CUstream_st {
  int device = 0;
  uint64_t number = 0;
  std::thread worker;
  std::deque<std::unique_ptr<gpipe::emulated::Task>> queue;
  std::condition_variable wake;
  uint64_t pushed = 0;
  uint64_t done = 0;
  bool closing = false;
  bool ended = false;
  gpipe::emulated::Edge end;  // of all its work
  ~CUstream_st();
};
