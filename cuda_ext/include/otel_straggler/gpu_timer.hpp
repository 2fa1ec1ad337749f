// What the recorder and the exporter need from a GPU timer. One object of each kind lives
// as long as the process, so that no thread is ever left with one that has gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "otel_straggler/record.hpp"

namespace otel_straggler {

// What the GPU has done that is in no run's numbers, since the process began; in events, which are
// kernels, copies, sets and graphs.
struct GpuLosses {
  std::uint64_t dropped = 0;  // the driver had no room for them, or they came garbled
  std::uint64_t invalid = 0;  // without times
  std::uint64_t lost = 0;     // of a run, unknown which
  std::uint64_t late = 0;     // of a run that was handed out before they came
};

class GpuTimer {
 public:
  // On the thread that runs the section, in the order in which runs begin and end on it.
  // is_ambient: this thread speaks for the process, as to work that others launch on its behalf.
  virtual void begun(bool is_ambient, std::uint64_t span, std::uint32_t section) noexcept = 0;
  // A step, on the thread that counts steps.
  virtual void begun_step(std::uint64_t span, std::int64_t /*step*/) noexcept {
    begun(true, span, kStepSection);
  }
  // now_span, now_section: the run around it, which is current again; kNoSpan: none.
  virtual void ended(bool is_ambient, std::uint64_t span, std::uint64_t now_span,
                     std::uint32_t now_section) noexcept = 0;

  // Ended runs, in the order of the ring, each after both its boundaries were reported; they come
  // out of drain_ready() with their numbers.
  virtual void add(const Record* records, std::size_t count) = 0;
  // Appends the oldest runs whose numbers are there, or are not waited for any longer.
  virtual void drain_ready(std::int64_t now_ns, std::vector<Record>& out) = 0;
  // All that waits. is_complete: the GPU was synchronised, and nothing can come any more.
  virtual void drain_all(bool is_complete, std::vector<Record>& out) = 0;

  virtual GpuLosses losses() { return {}; }

 protected:
  GpuTimer() = default;
  GpuTimer(const GpuTimer&) = default;
  GpuTimer& operator=(const GpuTimer&) = default;
  ~GpuTimer() = default;
};

}  // namespace otel_straggler
