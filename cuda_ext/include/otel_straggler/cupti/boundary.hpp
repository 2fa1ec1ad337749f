// What the recorder knows, as kernel timing wants it: which run is current in a thread, and whether
// the thread speaks for the process.
#pragma once

#include <cstdint>

#include "otel_straggler/recorder.hpp"

namespace otel_straggler::cupti {

struct Boundary {
  bool is_ambient;
  std::uint64_t span;  // kNoSpan: no run is current
  std::uint32_t section;
};

// To be told to Collector::boundary() after a run or a step has begun or ended in this thread.
// is_main: it is the process's first thread, which speaks for it until one counts steps.
inline Boundary boundary_of(const Recorder& recorder, const ThreadStack& stack, bool is_main) {
  struct Step {
    std::uint64_t span;
    std::uint32_t thread;
  };
  const Step step = recorder.header().surroundings.read([](const Cell<Surroundings>& place) {
    constexpr std::size_t kSpan = offsetof(Surroundings, step_span) / 8;
    constexpr std::size_t kThread = offsetof(Surroundings, stepping_thread) / 8;
    return Step{place.word(kSpan), static_cast<std::uint32_t>(place.word(kThread))};
  });
  const bool is_ambient = step.thread == kNoThread ? is_main : step.thread == stack.number();
  if (const std::size_t depth = stack.depth(); depth > kFramesTold) {
    const Frame frame = stack.at(depth - 1);
    return {is_ambient, frame.span, frame.section};
  } else if (depth > 0) {
    const Cell<Frame>& frame = stack.told(depth - 1);
    const auto section = static_cast<std::uint32_t>(frame.word(kSectionWord));
    return {is_ambient, frame.word(kSpanWord), section};
  }
  return {is_ambient, is_ambient ? step.span : kNoSpan, kStepSection};
}

}  // namespace otel_straggler::cupti
