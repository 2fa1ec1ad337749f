// Timing sections by CUDA events: one recorded on the current stream where a run begins, one where
// it ends; the time between them is read later, by the exporter's thread.
//
// It never waits for the GPU, makes no context, and takes no lock on a thread that trains, but for
// that thread's first run. What it times is one stream: the gaps in which the GPU waits for work
// or for other ranks are in it, and what runs on other streams is not. It is never destroyed.
//
// Neighbours do not share an event, though one ends where the other begins: between the two the
// program runs, and whether it launched something is unknown.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/events/marker.hpp"
#include "otel_straggler/events/resolver.hpp"
#include "otel_straggler/events/thread_table.hpp"
#include "otel_straggler/gpu_timer.hpp"
#include "otel_straggler/turn.hpp"

namespace otel_straggler::events {

struct EventSettings {
  int device = -1;                   // the one that is timed; -1: whichever is current
  std::uint32_t max_pairs = 1'024;  // of a thread in a context; read ten times a second
  std::uint32_t max_pairs_in_all = 8'192;
  std::uint32_t max_threads = 256;
};

struct EventTimerState {
  bool is_on = false;
  Failure failure;
  RunCounts runs;
  std::uint64_t threads_left_out = 0;
  std::uint64_t pairs_made = 0;
  std::uint64_t pending = 0;  // pairs that the GPU has not come to yet
  std::uint64_t waiting = 0;  // ended runs
};

class EventTimer final : public GpuTimer {
 public:
  // driver: without a reason. Lives until the process ends.
  static EventTimer& make(const Driver& driver, const Host& host, const EventSettings& settings) {
    static const int forks = ::pthread_atfork(before_fork, after_fork, in_child);
    static_cast<void>(forks);
    const std::lock_guard<std::mutex> lock(mutex());
    all().push_back(new EventTimer(driver, host, settings));
    return *all().back();
  }

  // Begins to time. The answer is why not; empty: runs that begin from now on are timed.
  std::string start() {
    if (is_forked_.load()) return "CUDA does not work in a forked child; start it by spawn";
    if (is_on()) return "";
    clear_failure();
    Failure failure;
    if (ThreadRuns* const runs = threads_.here()) marker_.prepare(*runs, kPrepared, failure);
    if (failure.function != nullptr) return call_failed(failure.function, failure.code);
    threads_.begin_epoch();
    is_on_.store(true, std::memory_order_release);
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.begin(monotonic_ns());
    return "";
  }

  // Ends it, and waits until `deadline_ns` for what the GPU has not come to yet. May be started
  // again; its events stay for that.
  void stop(std::int64_t deadline_ns) {
    if (is_forked_.load() || !end_timing()) return;
    while (round(monotonic_ns()) && monotonic_ns() < deadline_ns) doze();
  }

  // At the end of the program: stop(), for threads that begin a boundary from now on.
  void turn_off() noexcept { end_timing(); }

  // Until no thread is at a boundary, or `deadline_ns`.
  void wait_for_threads(std::int64_t deadline_ns) {
    while (threads_.is_anyone_inside() && monotonic_ns() < deadline_ns) doze();
  }

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  // Why timing has ended by itself; empty: it has not.
  std::string reason() {
    const std::lock_guard<std::mutex> lock(mutex());
    return failure_.function == nullptr ? "" : call_failed(failure_.function, failure_.code);
  }

  void begun(bool /*is_ambient*/, std::uint64_t span, std::uint32_t /*section*/) noexcept override {
    if (!is_on()) return;
    ThreadRuns* const runs = threads_.here();
    if (runs == nullptr) return;
    const ThreadRuns::Inside inside(*runs);
    Failure failure;
    runs->push(marker_.begin(*runs, span, failure));
    if (failure.function != nullptr) fail(failure);
  }

  void ended(bool /*is_ambient*/, std::uint64_t span, std::uint64_t /*now_span*/,
             std::uint32_t /*now_section*/) noexcept override {
    if (!is_on()) return;
    ThreadRuns* const runs = threads_.here();
    if (runs == nullptr) return;
    const ThreadRuns::Inside inside(*runs);
    Failure failure;
    runs->deliver(marker_.end(*runs, span, failure));
    if (failure.function != nullptr) fail(failure);
  }

  void add(const Record* records, std::size_t count) override {
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.add(records, count);
  }

  void drain_ready(std::int64_t now_ns, std::vector<Record>& out) override {
    round(now_ns);
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.drain_ready(now_ns, out);
  }

  void drain_all(bool /*is_complete*/, std::vector<Record>& out) override {
    const std::int64_t now_ns = monotonic_ns();
    round(now_ns);
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.drain_all(now_ns, out);
  }

  EventTimerState state() {
    EventTimerState now;
    now.is_on = is_on();
    now.threads_left_out = threads_.left_out();
    now.pairs_made = budget_.made();
    now.pending = pending_.load();
    const std::lock_guard<std::mutex> lock(mutex());
    now.failure = failure_;
    now.runs = waiting_.counts();
    now.waiting = waiting_.size();
    return now;
  }

 private:
  static constexpr std::size_t kPrepared = 8;

  EventTimer(const Driver& driver, const Host& host, const EventSettings& settings)
      : api_(driver.api),
        budget_(settings.max_pairs_in_all),
        threads_(settings.max_threads, settings.max_pairs),
        marker_(api_, host, settings.device, budget_),
        resolver_(api_, budget_) {}

  static void doze() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  // The GPU is lost to this process, or the context to us.
  void fail(const Failure& failure) noexcept {
    is_lost_.store(true);
    {
      const std::lock_guard<std::mutex> lock(mutex());
      if (failure_.function == nullptr) failure_ = failure;
    }
    end_timing();
  }

  // What was lost stays lost: its events are not used again.
  void clear_failure() {
    if (is_lost_.exchange(false)) threads_.retire_all();
    const std::lock_guard<std::mutex> lock(mutex());
    failure_ = Failure();
  }

  // False if it had ended.
  bool end_timing() noexcept {
    if (!is_on_.exchange(false)) return false;
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.end(monotonic_ns());
    return true;
  }

  // Reads what can be read. Whether there is more to come.
  bool round(std::int64_t now_ns) {
    if (is_forked_.load()) return false;
    const Turn turn(is_reading_);
    if (!turn.is_ours) return true;
    const std::uint64_t added = count_added();
    threads_.for_new(resolver_.feeds(), [&](ThreadRuns& runs) { resolver_.add(runs); });
    results_.clear();
    const Failure failure = resolver_.round(now_ns, is_lost_.load(), results_);
    pending_.store(resolver_.pending());
    if (failure.function != nullptr) fail(failure);
    const std::lock_guard<std::mutex> lock(mutex());
    waiting_.record(results_.data(), results_.size(), added, now_ns);
    return pending_.load() > 0;
  }

  std::uint64_t count_added() {
    const std::lock_guard<std::mutex> lock(mutex());
    return waiting_.added();
  }

  // --- forks: a child finds the locks free, and timing off ---------------------------------------

  // One for all timers: a fork waits for it. Guards what is below, and the list.
  static std::mutex& mutex() {
    static auto* const one = new std::mutex();
    return *one;
  }
  static std::vector<EventTimer*>& all() {
    static auto* const timers = new std::vector<EventTimer*>();
    return *timers;
  }
  static void before_fork() {
    mutex().lock();
    ThreadTable::mutex().lock();
  }
  static void after_fork() {
    ThreadTable::mutex().unlock();
    mutex().unlock();
  }
  static void in_child() {
    is_forked_.store(true);
    for (EventTimer* timer : all()) {
      timer->is_on_.store(false);
      timer->waiting_.end(0);
    }
    after_fork();
  }

  inline static std::atomic<bool> is_forked_{false};

  const Api api_;
  std::atomic<bool> is_on_{false};
  std::atomic<bool> is_lost_{false};
  std::atomic<std::uint64_t> pending_{0};
  Budget budget_;
  ThreadTable threads_;
  Marker marker_;

  std::atomic<bool> is_reading_{false};  // see Turn; guards the next two
  Resolver resolver_;
  std::vector<Result> results_;

  Waiting waiting_;  // this and the next under mutex(), which no thread holds in the driver
  Failure failure_;
};

}  // namespace otel_straggler::events
