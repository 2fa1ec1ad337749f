// Pairs of events of one thread in one CUDA context. They are made once, and go round between the
// thread that records them and the one that reads their times.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "otel_straggler/events/driver.hpp"
#include "otel_straggler/events/queue.hpp"

namespace otel_straggler::events {

class Lane;

struct Pair {
  Event begin = nullptr;
  Event end = nullptr;
  Lane* lane = nullptr;
};

// How many pairs there may be, of all threads and contexts.
class Budget {
 public:
  explicit Budget(std::uint32_t limit) : limit_(limit) {}

  bool acquire() {
    std::uint32_t made = made_.load(std::memory_order_relaxed);
    while (made < limit_) {
      if (made_.compare_exchange_weak(made, made + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  std::uint32_t made() const { return made_.load(std::memory_order_relaxed); }

 private:
  const std::uint32_t limit_;
  std::atomic<std::uint32_t> made_{0};
};

class Lane {
 public:
  Lane(Context context, int device, std::uint32_t limit)
      : context_(context),
        device_(device),
        pairs_(new Pair[limit]),
        limit_(limit),
        returned_(limit) {
    free_.reserve(limit);
  }

  Context context() const { return context_; }
  int device() const { return device_; }

  // --- the thread that records -------------------------------------------------------------------

  // Null if all that were made are under way.
  Pair* acquire() {
    if (free_.empty()) {
      Pair* back = nullptr;
      while (returned_.pop(back)) free_.push_back(back);
      if (free_.empty()) return nullptr;
    }
    Pair* const pair = free_.back();
    free_.pop_back();
    spare_.store(free_.size(), std::memory_order_relaxed);
    return pair;
  }

  // It is not needed after all.
  void put_back(Pair* pair) {
    free_.push_back(pair);
    spare_.store(free_.size(), std::memory_order_relaxed);
  }

  // --- the thread that reads ---------------------------------------------------------------------

  void give_back(Pair* pair) { returned_.push(pair); }  // never full: it holds all there are

  std::size_t spare() const { return spare_.load(std::memory_order_relaxed) + returned_.size(); }

  // --- either ------------------------------------------------------------------------------------

  bool has_room() const { return made_.load(std::memory_order_relaxed) < limit_; }

  // A new pair, of the context that is current in this thread; null if there are as many as may
  // be, or the driver has refused one.
  Pair* make(const Api& api, Budget& budget, Code& code) {
    code = kSuccess;
    std::uint32_t at = made_.load(std::memory_order_relaxed);
    do {
      if (at == limit_) return nullptr;
    } while (!made_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed));
    if (!budget.acquire()) return nullptr;
    Pair& pair = pairs_[at];
    pair.lane = this;
    code = api.create(&pair.begin, kTimingEvent);
    if (code == kSuccess) code = api.create(&pair.end, kTimingEvent);
    return code == kSuccess ? &pair : nullptr;
  }

 private:
  const Context context_;
  const int device_;
  const std::unique_ptr<Pair[]> pairs_;
  const std::uint32_t limit_;
  std::atomic<std::uint32_t> made_{0};
  std::vector<Pair*> free_;  // of the thread that records
  std::atomic<std::size_t> spare_{0};
  Queue<Pair*> returned_;
};

}  // namespace otel_straggler::events
