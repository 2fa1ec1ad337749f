// What the recorder reports to the GPU timer: which run has begun or ended, which one is current
// then, and whether the thread speaks for the process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "otel_straggler/gpu_timers.hpp"
#include "otel_straggler/recorder.hpp"

namespace otel_straggler {

struct Boundary {
  bool is_ambient;
  std::uint64_t span;  // kNoSpan: no run is current
  std::uint32_t section;
};

// The open step, and who counts steps.
struct StepNow {
  std::uint64_t span;
  std::uint32_t thread;

  // is_main: the process's first thread, which speaks for it until one counts steps.
  bool is_ambient(const ThreadStack& stack, bool is_main) const {
    return thread == kNoThread ? is_main : thread == stack.number();
  }
};

inline StepNow step_now(const Recorder& recorder) {
  return recorder.header().surroundings.read([](const Cell<Surroundings>& place) {
    constexpr std::size_t kSpan = offsetof(Surroundings, step_span) / 8;
    constexpr std::size_t kThread = offsetof(Surroundings, stepping_thread) / 8;
    return StepNow{place.word(kSpan), static_cast<std::uint32_t>(place.word(kThread))};
  });
}

// After a run or a step has begun or ended in this thread. A run that was begun before the open
// step holds none of that step's runs; so what is launched now is the step's.
inline Boundary boundary_of(const Recorder& recorder, const ThreadStack& stack, bool is_main) {
  const StepNow step = step_now(recorder);
  const bool is_ambient = step.is_ambient(stack, is_main);
  const Boundary of_step{is_ambient, is_ambient ? step.span : kNoSpan, kStepSection};
  const bool has_step = of_step.span != kNoSpan;
  if (const std::size_t depth = stack.depth(); depth > kPublishedFrames) {
    const Frame frame = stack.at(depth - 1);
    if (has_step && frame.step_span != step.span) return of_step;
    return {is_ambient, frame.span, frame.section};
  } else if (depth > 0) {
    const Cell<Frame>& frame = stack.published(depth - 1);
    if (has_step && frame.word(kStepSpanWord) != step.span) return of_step;
    const auto section = static_cast<std::uint32_t>(frame.word(kSectionWord));
    return {is_ambient, frame.word(kSpanWord), section};
  }
  return of_step;
}

// A run has begun in this thread; the recorder knows it.
inline void notify_begun(GpuTimer& timer, const Recorder& recorder, const ThreadStack& stack,
                         bool is_main, std::uint64_t span, std::uint32_t section) noexcept {
  timer.begun(step_now(recorder).is_ambient(stack, is_main), span, section);
}

// A run has ended in this thread. Before its record is in the ring: a timer is notified of the end
// of every run first, and given its record then.
inline void notify_ended(GpuTimer& timer, const Recorder& recorder, const ThreadStack& stack,
                         bool is_main, std::uint64_t span) noexcept {
  const Boundary now = boundary_of(recorder, stack, is_main);
  timer.ended(now.is_ambient, span, now.span, now.section);
}

inline void notify_step_begun(GpuTimer& timer, std::uint64_t span, std::int64_t step) noexcept {
  timer.begun_step(span, step);
}

// It may end in another thread than the one that has counted it.
inline void notify_step_ended(GpuTimer& timer, const Recorder& recorder, const ThreadStack& stack,
                              bool is_main, std::uint64_t span) noexcept {
  const Boundary now = boundary_of(recorder, stack, is_main);
  if (now.is_ambient) {
    timer.ended(true, span, now.span, now.section);
  } else {
    timer.ended(true, span, kNoSpan, kStepSection);
  }
}

}  // namespace otel_straggler
