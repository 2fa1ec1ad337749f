// Which timer of the GPU the process has now, and which ones it had lately.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/gpu_timer.hpp"

namespace otel_straggler {

class GpuTimers {
 public:
  // From `since_ns` on every boundary goes to this timer; up to `until_ns` they all went to the one
  // before. Between the two some threads still had the old one.
  struct Change {
    GpuTimer* timer;  // null: the GPU is not timed
    std::int64_t until_ns;
    std::int64_t since_ns;
    GpuLosses losses;  // of the timer, before its turn
  };

  // At a boundary. Cost: a load.
  GpuTimer* now() const noexcept { return now_.load(std::memory_order_acquire); }

  // Any thread, at any moment. Boundaries of runs that are open now are not reported to the new
  // one.
  void set(GpuTimer* timer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_complete_.store(false, std::memory_order_release);
    if (timer == now_.load(std::memory_order_relaxed)) return;
    const GpuLosses losses = timer == nullptr ? GpuLosses() : timer->losses();
    const std::int64_t until_ns = monotonic_ns();
    now_.store(timer, std::memory_order_seq_cst);
    changes_.push_back({timer, until_ns, monotonic_ns(), losses});
    if (changes_.size() > kMaxChanges) changes_.pop_front();
    made_.fetch_add(1, std::memory_order_release);
  }

  // In a forked child, by itself: what times the GPU there is the parent's.
  void abandon() noexcept { now_.store(nullptr, std::memory_order_relaxed); }

  // Whether there has ever been one.
  bool is_used() const noexcept { return made_.load(std::memory_order_acquire) != 0; }

  // The GPU was synchronised and all that it did was given back; nothing more is launched. Holds
  // until the next change, and for one session.
  void set_complete(bool is_complete) noexcept {
    is_complete_.store(is_complete, std::memory_order_release);
  }
  bool is_complete() const noexcept { return is_complete_.load(std::memory_order_acquire); }

  // The changes after the first `seen`, which becomes the number of all; the newest kMaxChanges.
  void read(std::uint64_t& seen, std::vector<Change>& out) const {
    if (made_.load(std::memory_order_acquire) == seen) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::uint64_t made = made_.load(std::memory_order_relaxed);
    const std::uint64_t missed = made - seen;
    const std::size_t first = missed > changes_.size() ? 0 : changes_.size() - missed;
    for (std::size_t at = first; at < changes_.size(); ++at) out.push_back(changes_[at]);
    seen = made;
  }

 private:
  static constexpr std::size_t kMaxChanges = 64;

  std::atomic<GpuTimer*> now_{nullptr};
  std::atomic<std::uint64_t> made_{0};
  std::atomic<bool> is_complete_{false};
  mutable std::mutex mutex_;
  std::deque<Change> changes_;
};

}  // namespace otel_straggler
