// Between the ring and the encoder: ended runs wait here, in their order, until the timer of the
// GPU has their numbers. Each comes out once, whatever becomes of the timer meanwhile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/gpu_timers.hpp"
#include "otel_straggler/record.hpp"

namespace otel_straggler {

// One thread at a time.
class GpuStage {
 public:
  static constexpr std::int64_t kPatienceNs = 2 * kSecondNs;  // as long as a timer lets a run wait

  // timers: live as long as the process.
  explicit GpuStage(GpuTimers& timers) : timers_(&timers) {
    timers.set_complete(false);  // that was of a session that has ended
    learn();
    while (!coming_.empty()) turn_to(pop());
    for (auto& [timer, before] : seen_timers_) before = timer->losses();
    if (timer_ != nullptr) timer_->drain_all(false, given_);  // another stage's
    given_.clear();
  }

  // False: the GPU has never been timed, and records need not come through here.
  bool is_needed() const { return timers_->is_used(); }

  // Ended runs, in the order of the ring.
  void put(const Record* records, std::size_t count) {
    learn();
    for (std::size_t at = 0; at < count; ++at) put(records[at]);
    give_batch();
  }

  // Appends the runs that wait for nothing any more. Once the ring is empty, all of it having been
  // put here.
  void drain_ready(std::int64_t now_ns, std::vector<Record>& out) {
    learn();
    const auto ready = [&](std::vector<Record>& given) { timer_->drain_ready(now_ns, given); };
    ask(ready);
    while (!coming_.empty() && is_done_with(now_ns)) {
      next(false);
      ask(ready);
    }
    keep_awake(now_ns);
    hand_out(out);
  }

  // Appends all that waits. is_complete: see GpuTimers::set_complete().
  void drain_all(bool is_complete, std::vector<Record>& out) {
    learn();
    while (!coming_.empty()) next(is_complete);
    drain_rest(is_complete);
    hand_out(out);
  }

  bool is_waiting() const { return is_timer_busy() || !held_.empty() || !ready_.empty(); }
  bool is_complete() const { return timers_->is_complete(); }

  // Runs so far whose numbers did not come, or were not whole.
  std::uint64_t missing() const { return missing_; }

  // Of all timers together, since this stage has known them.
  GpuLosses losses() const {
    GpuLosses all;
    for (const auto& [timer, before] : seen_timers_) {
      const GpuLosses now = timer->losses();
      all.dropped += now.dropped - before.dropped;
      all.invalid += now.invalid - before.invalid;
      all.lost += now.lost - before.lost;
      all.late += now.late - before.late;
    }
    return all;
  }

 private:
  using Change = GpuTimers::Change;

  static constexpr std::int64_t kSettleNs = kSecondNs / 10;  // runs under way into the ring
  static constexpr std::size_t kMaxHeld = 65'536;

  // A run that does not wait for the timer, but for those before it.
  struct Aside {
    std::uint64_t after;  // so many that do
    Record record;
    std::int64_t waited_ns;
  };

  // How long a run that the timer has waited in collectives: timers write over that.
  struct Waited {
    std::uint64_t place;  // among those given to the timer
    std::int64_t waited_ns;
  };

  // --- which timer -------------------------------------------------------------------------------

  void learn() {
    learnt_.clear();
    timers_->read(changes_seen_, learnt_);
    coming_.insert(coming_.end(), learnt_.begin(), learnt_.end());
  }

  Change pop() {
    const Change change = coming_.front();
    coming_.pop_front();
    return change;
  }

  void turn_to(const Change& change) {
    before_ = std::exchange(timer_, change.timer);
    until_ns_ = change.until_ns;
    since_ns_ = change.since_ns;
    added_ = came_ = 0;
    if (timer_ != nullptr) seen_timers_.emplace(timer_, change.losses);
  }

  bool is_timer_busy() const { return came_ < added_; }

  // Whether the next timer's turn has come: this one has given what it had, or was given up.
  bool is_done_with(std::int64_t now_ns) const {
    const std::int64_t ago_ns = now_ns - coming_.front().since_ns;
    if (ago_ns >= kPatienceNs || held_.size() > kMaxHeld) return true;
    return ago_ns >= kSettleNs && !is_timer_busy();
  }

  // Timers whose turn is to come have work already: what was reported to them is to be read.
  void keep_awake(std::int64_t now_ns) {
    for (const Change& change : coming_) {
      if (change.timer == nullptr || change.timer == timer_) continue;
      given_.clear();
      change.timer->drain_ready(now_ns, given_);  // nothing was added
    }
  }

  // The turn of the next timer, and of the runs that are its.
  void next(bool is_complete) {
    drain_rest(is_complete);
    turn_to(pop());
    const std::vector<Record> held = std::exchange(held_, {});
    for (const Record& record : held) put(record);
    give_batch();
  }

  // --- runs --------------------------------------------------------------------------------------

  void put(const Record& record) {
    const bool is_of_next = !coming_.empty() && record.end_ns > coming_.front().until_ns;
    if (is_of_next || !held_.empty()) {
      held_.push_back(record);
    } else {
      place(record);
    }
  }

  void place(Record record) {
    if (record.gpu.state == GpuState::kTimedByEvents) {  // by somebody else's: DDP's
      put_aside(record, 0);
      return;
    }
    const std::int64_t waited_ns = waited_ns_of(record.gpu);
    record.gpu = GpuSlot{};
    const bool is_covered = record.start_ns >= since_ns_;  // from beginning to end
    const bool is_timed = timer_ != nullptr || (!is_covered && before_ != nullptr);
    if ((record.flags & kHostOnly) != 0 || !is_timed || is_before_all(record)) {
      put_aside(record, waited_ns);
    } else if (!is_covered) {
      record.gpu.state = GpuState::kMissing;
      put_aside(record, waited_ns);
    } else {
      if (waited_ns > 0) waited_.push_back({added_, waited_ns});
      batch_.push_back(record);
      ++added_;
    }
  }

  // Whether it ended before timing of the GPU began.
  bool is_before_all(const Record& record) const {
    return before_ == nullptr && record.end_ns <= until_ns_;
  }

  void put_aside(const Record& record, std::int64_t waited_ns) {
    if (is_timer_busy()) {
      aside_.push_back({added_, record, waited_ns});
    } else {
      give(record, waited_ns);
    }
  }

  void give_batch() {
    if (batch_.empty()) return;
    timer_->add(batch_.data(), batch_.size());
    batch_.clear();
  }

  void drain_rest(bool is_complete) {
    ask([&](std::vector<Record>& given) { timer_->drain_all(is_complete, given); });
    for (const Aside& one : aside_) give(one.record, one.waited_ns);
    aside_.clear();
    waited_.clear();
    came_ = added_;
  }

  template <typename Collect>
  void ask(Collect collect) {
    if (timer_ == nullptr) return;
    given_.clear();
    collect(given_);
    for (const Record& record : given_) {
      give(record, waited_ns_of_next());
      ++came_;
      for (; !aside_.empty() && aside_.front().after <= came_; aside_.pop_front()) {
        give(aside_.front().record, aside_.front().waited_ns);
      }
    }
  }

  // Of the run that comes from the timer now.
  std::int64_t waited_ns_of_next() {
    if (waited_.empty() || waited_.front().place != came_) return 0;
    const std::int64_t waited_ns = waited_.front().waited_ns;
    waited_.pop_front();
    return waited_ns;
  }

  // Times of the GPU tell work and waiting apart better than the host's clock does.
  void give(const Record& record, std::int64_t waited_ns) {
    const GpuState state = record.gpu.state;
    missing_ += state == GpuState::kMissing ? 1U : 0U;
    ready_.push_back(record);
    if (waited_ns == 0 || state == GpuState::kTimed) return;
    const GpuSlot waited = waited_slot(waited_ns, record.start_ns, record.end_ns);
    if (state == GpuState::kTimedByEvents) {  // which has the waiting in it
      ready_.back().gpu.nccl_time_ns = waited_ns_of(waited) > 0 ? waited.nccl_time_ns : -1;
    } else {
      ready_.back().gpu = waited;
    }
  }

  void hand_out(std::vector<Record>& out) {
    out.insert(out.end(), ready_.begin(), ready_.end());
    ready_.clear();
  }

  const GpuTimers* timers_;
  std::uint64_t changes_seen_ = 0;
  std::deque<Change> coming_;      // after that of the timer below
  GpuTimer* timer_ = nullptr;      // whose turn it is
  GpuTimer* before_ = nullptr;     // and whose it was before
  std::int64_t until_ns_ = 0;      // runs that ended by then are the one's before
  std::int64_t since_ns_ = 0;      // runs that began then are its own
  std::uint64_t added_ = 0;        // runs given to the timer, and taken from it
  std::uint64_t came_ = 0;
  std::uint64_t missing_ = 0;
  std::vector<Record> batch_;      // on the way to the timer
  std::deque<Aside> aside_;
  std::deque<Waited> waited_;
  std::vector<Record> held_;       // for the next timer
  std::vector<Record> ready_;
  std::vector<Record> given_;
  std::vector<Change> learnt_;
  std::map<GpuTimer*, GpuLosses> seen_timers_;
};

}  // namespace otel_straggler
