// One ended run of a section: what the ring holds, the encoder reads and the CUDA part completes.
//
// The layout is frozen. It is also what a reader in another process finds in the ring's file, so a
// change is a new kRecordVersion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace otel_straggler {

inline constexpr std::uint32_t kRecordVersion = 1;
inline constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kNotReported = -1;
inline constexpr std::uint64_t kNoSpan = 0;
inline constexpr std::uint32_t kNoSection = 0xFFFF'FFFFU;
inline constexpr std::uint32_t kStepSection = 0;  // the number of the name of steps

// Bits of Record::flags.
inline constexpr std::uint32_t kFailed = 1U << 0;      // an exception ended it
inline constexpr std::uint32_t kStepSpan = 1U << 1;    // it is a step, not a section
inline constexpr std::uint32_t kFolded = 1U << 2;      // several runs in one; see fold.hpp
// Its thread did other things meanwhile, or it was timed elsewhere: its GPU time is unknown.
inline constexpr std::uint32_t kHostOnly = 1U << 3;

// Values of GpuSlot::state. Readers treat any other value as kOff; new ones may come
// without a new layout.
enum class GpuState : std::uint32_t {
  kOff = 0,
  kAwaited = 1,  // the run has ended, its numbers are to come
  kTimed = 2,    // kernels were timed: all numbers hold, a time below 0 is not known
  kMissing = 3,  // the numbers came too late, or not at all
  // Only the stream was timed, by events around the run: busy_time_ns is the time between them.
  // Kernels were not seen: their times are below 0, and kernel_count means nothing. nccl_time_ns is
  // what the thread waited in collectives by its own clock; below 0: nothing.
  kTimedByEvents = 4,
  // The GPU was not timed; nccl_time_ns is what the thread waited in collectives by its own clock.
  kWaited = 5,
};

// GPU time of the run. The CUDA part fills it after the run has ended.
struct GpuSlot {
  std::int64_t kernel_time_ns;
  std::int64_t busy_time_ns;
  std::int64_t nccl_time_ns;
  std::uint32_t kernel_count;
  GpuState state;
};

// Host time of a run, of which its thread waited so much in collectives; kOff if it did not.
inline GpuSlot waited_slot(std::int64_t waited_ns, std::int64_t start_ns, std::int64_t end_ns) {
  GpuSlot slot{};
  if (waited_ns <= 0 || end_ns <= start_ns) return slot;
  slot.nccl_time_ns = waited_ns < end_ns - start_ns ? waited_ns : end_ns - start_ns;
  slot.state = GpuState::kWaited;
  return slot;
}

// What the thread waited in collectives by its own clock; 0 where that is not known.
inline std::int64_t waited_ns_of(const GpuSlot& slot) {
  const bool is_of_host = slot.state == GpuState::kWaited || slot.state == GpuState::kTimedByEvents;
  return is_of_host && slot.nccl_time_ns > 0 ? slot.nccl_time_ns : 0;
}

struct Record {
  std::uint64_t span;       // number of the run in its process, from 1
  std::uint64_t parent;     // of the enclosing run of the same step, or of the step; kNoSpan: none
  std::uint64_t step_span;  // of the open step; kNoSpan outside of one
  std::int64_t step;        // kNoStep outside of one
  std::int64_t start_ns;    // CLOCK_MONOTONIC
  std::int64_t end_ns;
  std::int64_t tokens;      // kNotReported
  std::int64_t microbatch;  // kNotReported
  std::uint32_t section;         // numbers of names, see encode_names.hpp
  std::uint32_t parent_section;  // kNoSection: not inside another section
  std::uint32_t phase;           // 0: none
  std::uint32_t epoch;           // whose telemetry it is
  std::uint32_t thread;          // number of the thread in its process
  std::uint32_t flags;
  std::uint64_t sequence;  // place in the ring, from 0; belongs to the ring
  GpuSlot gpu;
};

static_assert(sizeof(GpuSlot) == 32 && sizeof(Record) == 128);
static_assert(std::is_trivially_copyable_v<Record>);
static_assert(offsetof(Record, section) == 64 && offsetof(Record, sequence) == 88);
static_assert(offsetof(Record, gpu) == 96);

}  // namespace otel_straggler
