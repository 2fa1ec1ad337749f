// Places of the threads that run sections, given to the next thread when one ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "otel_straggler/events/thread_runs.hpp"

namespace otel_straggler::events {

class ThreadTable {
 public:
  ThreadTable(std::uint32_t max_threads, std::uint32_t max_pairs)
      : max_threads_(max_threads), max_pairs_(max_pairs) {}

  // Of this thread. Null if there are too many threads, or there is no memory. A lock is taken for
  // its first run only.
  ThreadRuns* here() noexcept {
    const bool is_known =
        this_table_ == this &&
        (this_runs_ == nullptr || !this_runs_->is_stale.load(std::memory_order_relaxed));
    if (!is_known) enter();
    if (this_runs_ != nullptr) this_runs_->begin_epoch(epoch_.load(std::memory_order_relaxed));
    return this_runs_;
  }

  // What is open now never ends.
  void begin_epoch() { epoch_.fetch_add(1, std::memory_order_relaxed); }

  // The events of these places are no longer in use.
  void retire_all() {
    const std::lock_guard<std::mutex> lock(mutex());
    for (const auto& runs : threads_) runs->is_stale.store(true);
  }

  bool is_anyone_inside() {
    const std::lock_guard<std::mutex> lock(mutex());
    for (const auto& runs : threads_) {
      if (runs->is_inside()) return true;
    }
    return false;
  }

  // Calls `visit` with each place beyond the first `known`.
  template <typename Visit>
  void for_new(std::size_t known, Visit visit) {
    const std::lock_guard<std::mutex> lock(mutex());
    for (; known < threads_.size(); ++known) visit(*threads_[known]);
  }

  std::uint64_t left_out() const { return left_out_.load(std::memory_order_relaxed); }

  // One for all tables: a fork waits for it.
  static std::mutex& mutex() {
    static auto* const one = new std::mutex();
    return *one;
  }

 private:
  struct Leaver {
    Leaver() = default;
    Leaver(const Leaver&) = delete;
    Leaver& operator=(const Leaver&) = delete;
    ~Leaver() { leave(); }
    void touch() {}
  };

  void enter() noexcept {
    static thread_local Leaver leaver;
    leaver.touch();
    leave();
    this_table_ = this;
    try {
      this_runs_ = find_place();
    } catch (const std::exception&) {  // no memory
    }
    if (this_runs_ == nullptr) left_out_.fetch_add(1, std::memory_order_relaxed);
  }

  static void leave() noexcept {
    this_table_ = nullptr;
    if (ThreadRuns* const runs = std::exchange(this_runs_, nullptr)) runs->leave();
  }

  ThreadRuns* find_place() {
    const std::lock_guard<std::mutex> lock(mutex());
    std::size_t in_use = 0;
    for (const auto& runs : threads_) {
      if (runs->is_stale.load(std::memory_order_relaxed)) continue;
      if (runs->try_enter()) return runs.get();
      ++in_use;
    }
    if (in_use >= max_threads_) return nullptr;
    threads_.push_back(std::make_unique<ThreadRuns>(max_pairs_));
    return threads_.back().get();
  }

  inline static thread_local ThreadTable* this_table_ = nullptr;
  inline static thread_local ThreadRuns* this_runs_ = nullptr;  // a place of this_table_'s

  const std::uint32_t max_threads_;
  const std::uint32_t max_pairs_;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint64_t> left_out_{0};
  std::vector<std::unique_ptr<ThreadRuns>> threads_;
};

}  // namespace otel_straggler::events
