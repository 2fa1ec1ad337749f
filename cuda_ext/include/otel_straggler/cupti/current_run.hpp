// Which run of a section a launched kernel belongs to: known to the whole process, with an override
// for threads that have sections of their own. Autograd launches the kernels of `backward` on a
// thread that knows nothing of sections.
//
// A run is known here by the lower half of its span's number: of 4 billion runs none are alive at
// the same time as their double.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "otel_straggler/record.hpp"

namespace otel_straggler::cupti {

using Run = std::uint32_t;
inline constexpr Run kNoRun = 0;

inline constexpr Run run_of(std::uint64_t span) { return static_cast<Run>(span); }

// The run that this thread's own sections have open; kNoRun: it goes with the process. No
// initialiser, so no guard.
inline __thread Run run_of_this_thread;

// What is known of the runs that were current lately. A place may be taken by a newer run; the
// older one is then unknown until it becomes current again.
class RunDirectory {
 public:
  static constexpr std::size_t kPlaces = 65'536;
  static constexpr std::uint32_t kHasGraphs = 1U << 31;  // unknown how many kernels
  static constexpr std::uint32_t kElsewhere = 1U << 30;  // nor which: it ran where marks cannot see

  RunDirectory() : places_(std::make_unique<Place[]>(kPlaces)) {}

  void put(Run run, std::uint32_t section) noexcept {
    Place& place = at(run);
    const std::uint64_t now = std::uint64_t{run} << 32 | section;
    const std::uint64_t before = place.run_section.load(std::memory_order_relaxed);
    if (before == now) return;
    // An older run that comes back had launches that were not kept.
    const bool is_newer = static_cast<std::int32_t>(run - static_cast<Run>(before >> 32)) > 0;
    const bool is_first = before == 0;
    place.launched.store(is_newer || is_first ? 0 : kHasGraphs, std::memory_order_relaxed);
    place.newest_at_end.store(0, std::memory_order_relaxed);
    place.run_section.store(now, std::memory_order_release);
  }

  void count_launch(Run run, bool is_graph) noexcept {
    std::atomic<std::uint32_t>& launched = at(run).launched;
    if (is_graph) {
      launched.fetch_or(kHasGraphs, std::memory_order_relaxed);
    } else {
      launched.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // It is current, in a thread that marks know nothing of.
  void mark_elsewhere(Run run) noexcept {
    at(run).launched.fetch_or(kElsewhere, std::memory_order_relaxed);
  }

  // It has ended. newest: the newest mark or launch of the process by then.
  void record_end(Run run, std::uint32_t newest) noexcept {
    if (section_of(run) == kNoSection) return;  // its place was taken
    at(run).newest_at_end.store(newest, std::memory_order_release);
  }

  // False where that is not known.
  bool newest_at_end(Run run, std::uint32_t& newest) const noexcept {
    newest = at(run).newest_at_end.load(std::memory_order_acquire);
    return newest != 0 && section_of(run) != kNoSection;
  }

  bool is_elsewhere(Run run) const noexcept {
    return section_of(run) != kNoSection &&
           (at(run).launched.load(std::memory_order_relaxed) & kElsewhere) != 0;
  }

  // kNoSection if it is not known.
  std::uint32_t section_of(Run run) const noexcept {
    const std::uint64_t found = at(run).run_section.load(std::memory_order_acquire);
    return found >> 32 == run ? static_cast<std::uint32_t>(found) : kNoSection;
  }

  // kHasGraphs if that cannot be said.
  std::uint32_t launched(Run run) const noexcept {
    if (section_of(run) == kNoSection) return kHasGraphs;
    return at(run).launched.load(std::memory_order_relaxed);
  }

 private:
  struct Place {
    std::atomic<std::uint64_t> run_section{0};
    std::atomic<std::uint32_t> launched{0};
    std::atomic<std::uint32_t> newest_at_end{0};  // 0: it has not ended, or no end was reported
  };

  Place& at(Run run) const { return places_[run % kPlaces]; }

  std::unique_ptr<Place[]> places_;
};

class CurrentRun {
 public:
  // Another run is current: it has begun, or one inside it has ended. kNoSpan: none.
  // is_ambient: the thread speaks for the process; one thread does, the one that counts steps.
  void set(bool is_ambient, std::uint64_t span, std::uint32_t section) noexcept {
    const Run run = run_of(span);
    if (run != kNoRun) directory_.put(run, section);
    if (is_ambient) {
      ambient_.store(run, std::memory_order_relaxed);
      // It may have had runs of its own before it counted steps.
      if (section == kStepSection) run_of_this_thread = kNoRun;
    } else {
      run_of_this_thread = run;
    }
  }

  // Of a kernel that this thread launches now.
  Run here() const noexcept {
    const Run own = run_of_this_thread;
    return own != kNoRun ? own : ambient_.load(std::memory_order_relaxed);
  }

  // What was last reported to the process.
  Run ambient() const noexcept { return ambient_.load(std::memory_order_relaxed); }

  RunDirectory& directory() { return directory_; }

 private:
  std::atomic<Run> ambient_{kNoRun};
  RunDirectory directory_;
};

}  // namespace otel_straggler::cupti
