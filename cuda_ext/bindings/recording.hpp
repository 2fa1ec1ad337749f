// What the two bindings of recording share: the recorder of this process, and the thread's stack.
#pragma once

#include "module.hpp"

#include "otel_straggler/gpu_boundary.hpp"
#include "otel_straggler/gpu_timers.hpp"
#include "otel_straggler/handoff.hpp"
#include "otel_straggler/recorder.hpp"

namespace otel_straggler::bindings {

struct Recording {
  Recorder* recorder = nullptr;     // null until a block is opened
  Handoff* handoff = nullptr;       // of its records; comes and goes with it
  PyObject* when_full = nullptr;    // called where no thread drains
  PyObject* is_failure = nullptr;   // (span, class of an exception) -> bool
  GpuTimers* gpu_timers = nullptr;  // made with the module; another one in a forked child
  std::uint32_t main_thread = kNoThread;  // the number of the process's first thread
  std::uint64_t incarnation = 0;    // counts forks: what began in the parent ends in the parent
};
extern Recording recording;

extern __thread ThreadStack* this_stack;  // null until its first run; no initialiser, no guard
ThreadStack& enter_thread();                  // makes it; needs a recorder

inline ThreadStack& thread_stack() { return this_stack == nullptr ? enter_thread() : *this_stack; }
inline bool is_on() { return recording.recorder != nullptr && recording.recorder->is_on(); }
inline std::int64_t now_ns() { return monotonic_ns(); }

// The timer to notify of a boundary in this thread; null if there is none.
inline GpuTimer* gpu_timer() { return recording.gpu_timers->now(); }
inline bool is_main(const ThreadStack& stack) { return stack.number() == recording.main_thread; }

// A run has begun in this thread.
inline void notify_begun(const ThreadStack& stack, std::uint64_t span, std::uint32_t section) {
  GpuTimer* const timer = gpu_timer();
  if (timer == nullptr) return;
  notify_begun(*timer, *recording.recorder, stack, is_main(stack), span, section);
}

// A run has ended in this thread; its record is not in the ring yet. timer: as it was before the
// clock was read, so that a replacement knows by the time which one was notified.
inline void notify_ended(GpuTimer* timer, const ThreadStack& stack, std::uint64_t span) {
  if (timer == nullptr) return;
  notify_ended(*timer, *recording.recorder, stack, is_main(stack), span);
}

// Puts an ended run into the ring, or has the ring emptied, or counts it as lost. False with an
// exception set if emptying raised one.
bool keep(const Record& record);

// kFailed if the exception that ended the run is a failure of it, else 0.
std::uint32_t failure_of(std::uint64_t span, PyObject* error);

// Fills `work` from (microbatch, tokens) or None; false with an exception set if it is neither.
bool read_work(PyObject* size, Work& work);

}  // namespace otel_straggler::bindings
