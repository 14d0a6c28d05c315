// What ThreadSanitizer may see of the emulation: only the order that CUDA gives.
//
// The emulation's own locks would order everything with everything and hide a missing wait. So they are taken under Quiet,
// which makes ThreadSanitizer ignore them, and the edges of CUDA (call to task, task to task, record to wait, task to
// synchronisation) are stated with Edge.
#pragma once

#include <mutex>

#if defined(__SANITIZE_THREAD__)
#define GPIPE_EMULATED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPIPE_EMULATED_TSAN 1
#endif
#endif

#ifdef GPIPE_EMULATED_TSAN
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace gpipe::emulated {

/// While one lives, ThreadSanitizer ignores this thread's accesses and synchronisation.
class Quiet {
 public:
  Quiet() {
#ifdef GPIPE_EMULATED_TSAN
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~Quiet() {
#ifdef GPIPE_EMULATED_TSAN
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// One "happens before" that CUDA promises. release() and acquire() must be called outside of Quiet; the object stays where it
/// is.
class Edge {
 public:
  Edge() = default;
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  void release() {
#ifdef GPIPE_EMULATED_TSAN
    __tsan_release(&token_);
#endif
  }
  void acquire() {
#ifdef GPIPE_EMULATED_TSAN
    __tsan_acquire(&token_);
#endif
  }

 private:
  char token_ = 0;
};

std::mutex& state_mutex();

/// The one lock over the emulation's state, unseen by ThreadSanitizer.
class Lock {
 public:
  Lock() : lock_(state_mutex()) {}
  std::unique_lock<std::mutex>& get() { return lock_; }

 private:
  Quiet quiet_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace gpipe::emulated
