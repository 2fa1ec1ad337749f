// Which steps have kernel records: one of N, the same numbers on all ranks. A program that counts no
// steps has one of N runs of each section.
//
// The thread that trains decides and switches; the worker learns from a log which runs lie within.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "otel_straggler/record.hpp"

namespace otel_straggler::cupti {

// How often kernel records are on.
struct SamplingRate {
  std::uint32_t steps = 1;  // one step of so many; 0: none
  std::uint32_t runs = 1;   // outside of sampled steps, one run of each section of so many; 0: none

  bool is_always() const { return steps == 1 && runs == 1; }
};

class Sampling {
 public:
  void set(SamplingRate rate) noexcept {
    steps_.store(rate.steps, std::memory_order_relaxed);
    runs_.store(rate.runs, std::memory_order_relaxed);
  }
  SamplingRate rate() const noexcept {
    return {steps_.load(std::memory_order_relaxed), runs_.load(std::memory_order_relaxed)};
  }

  // Until the records are seen to be good, every other step has them: a buffer comes back once
  // nothing in it runs any more.
  void set_probing(bool is_probing) noexcept {
    is_probing_.store(is_probing, std::memory_order_relaxed);
  }
  bool is_probing() const noexcept { return is_probing_.load(std::memory_order_relaxed); }

  bool wants_step(std::int64_t step) const noexcept {
    const std::uint32_t every = steps_.load(std::memory_order_relaxed);
    if (every <= 1) return every == 1;
    const std::int64_t used = is_probing_.load(std::memory_order_relaxed) ? 2 : every;
    return step % used == 0;
  }

  // One thread at a time: the one that speaks for the process.
  bool wants_run(std::uint32_t section) noexcept {
    const std::uint32_t every = runs_.load(std::memory_order_relaxed);
    if (every <= 1) return every == 1;
    const std::uint32_t used = is_probing_.load(std::memory_order_relaxed) ? 2 : every;
    return counts_[section % counts_.size()]++ % used == 0;
  }

 private:
  std::atomic<std::uint32_t> steps_{1};
  std::atomic<std::uint32_t> runs_{1};
  std::atomic<bool> is_probing_{false};
  std::array<std::uint32_t, 256> counts_{};
};

struct Switch {
  std::uint64_t span;  // the run that began as it was switched on; kNoSpan: none
  std::int64_t at_ns;
  bool is_on;
};

// From the threads that switch, one at a time, to the worker. The newest kPlaces.
class SwitchLog {
 public:
  static constexpr std::uint64_t kPlaces = 1'024;

  void push(const Switch& one) noexcept {
    const std::uint64_t at = made_.load(std::memory_order_relaxed);
    places_[at % kPlaces] = one;
    made_.store(at + 1, std::memory_order_release);
  }

  // The worker's. Half of the places at most are read, so that none is written meanwhile.
  template <typename Each>
  void read(Each each) {
    const std::uint64_t made = made_.load(std::memory_order_acquire);
    if (made - read_ > kPlaces / 2) read_ = made - kPlaces / 2;
    for (; read_ != made; ++read_) each(places_[read_ % kPlaces]);
  }

 private:
  std::array<Switch, kPlaces> places_{};
  std::atomic<std::uint64_t> made_{0};
  std::uint64_t read_ = 0;
};

// The worker's view of when records were on. A run lies within if it began with the switch or after
// it, and ended before the next.
class RecordedWindows {
 public:
  void learn(const Switch& one) {
    if (one.is_on) {
      windows_.push_back({one.span, one.at_ns, kOpen});
      ++opened_;
    } else if (!windows_.empty() && windows_.back().until_ns == kOpen) {
      windows_.back().until_ns = one.at_ns;
    }
    while (windows_.size() > kMax) windows_.pop_front();
  }

  void clear() { windows_.clear(); }

  bool hold(const Record& record) const {
    for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
      const bool is_since = window->first_span == kNoSpan ? record.start_ns >= window->since_ns
                                                          : record.span >= window->first_span;
      if (is_since) return record.end_ns <= window->until_ns;
    }
    return false;
  }

  std::uint64_t opened() const { return opened_; }

 private:
  static constexpr std::int64_t kOpen = INT64_MAX;
  static constexpr std::size_t kMax = 512;

  struct Window {
    std::uint64_t first_span;  // kNoSpan: it counts from a moment on
    std::int64_t since_ns;
    std::int64_t until_ns;
  };
  std::deque<Window> windows_;
  std::uint64_t opened_ = 0;
};

}  // namespace otel_straggler::cupti
