// The runs of one thread that are open, and those that have ended and go to the reader of their
// times. Nothing here calls the driver.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "otel_straggler/events/lane.hpp"
#include "otel_straggler/events/queue.hpp"

namespace otel_straggler::events {

// What has become of a run's pair of events, by cause.
enum class Outcome : std::uint8_t {
  kPending,      // the GPU has not come so far
  kTimed,
  kNoContext,    // the thread uses no GPU
  kElsewhere,    // another device than the one that is timed
  kCapturing,    // a graph was being captured
  kMoved,        // it ended on another stream, in another context or thread than it began
  kOverrun,      // more runs were under way than there are events for
  kNoStream,     // unknown which stream is current
  kRefused,      // by the driver
  kLate,         // the GPU did not come so far in time
  kOutside,      // while nothing was timed
  kUnreported,   // it began before timing did, or was not reported to us
  kOutcomes,
};
inline constexpr std::size_t kOutcomeCount = static_cast<std::size_t>(Outcome::kOutcomes);

struct Ended {
  std::uint64_t span;
  Pair* pair;  // null if the outcome is known already
  Stream stream;
  Outcome outcome;  // else kPending
};

struct OpenRun {
  std::uint64_t span;
  Pair* pair;  // its first event was recorded; null: see outcome
  Stream stream;
  Outcome outcome;
};

class ThreadRuns {
 public:
  static constexpr std::size_t kMaxOpen = 128;
  static constexpr std::size_t kMaxLanes = 8;
  static constexpr std::size_t kMinEnded = 256;  // also of those that have no events

  explicit ThreadRuns(std::uint32_t max_pairs)
      : max_pairs_(max_pairs), ended_(std::max(kMinEnded, std::size_t{2} * max_pairs)) {}

  // --- its thread --------------------------------------------------------------------------------

  // Whatever is open from before timing was started the last time never ends.
  void begin_epoch(std::uint32_t epoch) {
    if (epoch_ == epoch) return;
    epoch_ = epoch;
    while (depth_ > 0) drop(open_[--depth_]);
  }

  void push(const OpenRun& run) {
    if (depth_ == kMaxOpen) evict_outermost(kMaxOpen / 2);
    open_[depth_++] = run;
  }

  // False if it did not begin here. Others may lie upon it: coroutines interleave.
  bool remove(std::uint64_t span, OpenRun& run) {
    for (std::size_t at = depth_; at-- > 0;) {
      if (open_[at].span != span) continue;
      run = open_[at];
      for (--depth_; at < depth_; ++at) open_[at] = open_[at + 1];
      return true;
    }
    return false;
  }

  // Hands it to the reader; lost if it was not read for too long.
  void deliver(const Ended& ended) {
    if (!ended_.push(ended) && ended.pair != nullptr) ended.pair->lane->put_back(ended.pair);
  }

  // Null if this context is new here.
  Lane* lane_of(Context context) {
    if (last_lane_ != nullptr && last_lane_->context() == context) return last_lane_;
    for (std::size_t at = 0; at < lane_count(); ++at) {
      if (lanes_[at]->context() == context) return last_lane_ = lanes_[at].get();
    }
    return nullptr;
  }

  // Null if the thread has used too many contexts.
  Lane* add_lane(Context context, int device) {
    const std::size_t count = lane_count();
    if (count == kMaxLanes) return nullptr;
    lanes_[count] = std::make_unique<Lane>(context, device, max_pairs_);
    lane_count_.store(count + 1, std::memory_order_release);
    return last_lane_ = lanes_[count].get();
  }

  // While its thread asks the program for the stream, or is in the driver. A finaliser may run a
  // section meanwhile, inside the other.
  class Inside {
   public:
    explicit Inside(ThreadRuns& runs) : runs_(&runs), before_(runs.is_inside()) {
      runs_->is_inside_.store(true, std::memory_order_relaxed);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { runs_->is_inside_.store(before_, std::memory_order_release); }

   private:
    ThreadRuns* runs_;
    bool before_;
  };

  // --- any thread --------------------------------------------------------------------------------

  bool is_inside() const { return is_inside_.load(std::memory_order_acquire); }

  std::atomic<bool> is_stale{false};  // its events are of a context that was lost

  // A place that its thread has left may be taken by another.
  bool try_enter() { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void leave() { is_taken_.store(false, std::memory_order_release); }

  // --- the thread that reads ---------------------------------------------------------------------

  bool next_ended(Ended& ended) { return ended_.pop(ended); }
  std::size_t lane_count() const { return lane_count_.load(std::memory_order_acquire); }
  Lane& lane(std::size_t at) { return *lanes_[at]; }

 private:
  static void drop(const OpenRun& run) {
    if (run.pair != nullptr) run.pair->lane->put_back(run.pair);
  }

  void evict_outermost(std::size_t count) {
    for (std::size_t at = 0; at < count; ++at) drop(open_[at]);
    for (std::size_t at = count; at < depth_; ++at) open_[at - count] = open_[at];
    depth_ -= count;
  }

  const std::uint32_t max_pairs_;
  OpenRun open_[kMaxOpen];
  std::size_t depth_ = 0;
  std::uint32_t epoch_ = 0;
  Lane* last_lane_ = nullptr;
  std::unique_ptr<Lane> lanes_[kMaxLanes];
  std::atomic<std::size_t> lane_count_{0};
  Queue<Ended> ended_;
  std::atomic<bool> is_taken_{true};
  std::atomic<bool> is_inside_{false};
};

}  // namespace otel_straggler::events
