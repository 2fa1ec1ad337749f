// Ended runs that wait for the times of their events, and come out in the order in which they came.
// Reads no clock and knows no driver. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "otel_straggler/events/thread_runs.hpp"
#include "otel_straggler/record.hpp"

namespace otel_straggler::events {

struct Result {
  std::uint64_t span;
  Outcome outcome;
  std::int64_t busy_ns;  // if it was timed
};

struct RunCounts {
  std::uint64_t timed = 0;
  std::uint64_t missing = 0;
  std::uint64_t by_outcome[kOutcomeCount] = {};
};

class Waiting {
 public:
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;
  static constexpr std::int64_t kKeptNs = 10'000'000'000;  // a result that is not requested
  static constexpr std::size_t kMax = 65'536;

  // Runs that began before are not whole.
  void begin(std::int64_t now_ns) {
    idle_since_ns_ = std::exchange(timed_until_ns_, kOpen);
    timed_since_ns_ = now_ns;
  }

  void end(std::int64_t now_ns) {
    if (timed_until_ns_ == kOpen) timed_until_ns_ = now_ns;
  }

  // Each after its end was reported on its thread.
  void add(const Record* records, std::size_t count) {
    for (std::size_t at = 0; at < count; ++at) waiting_.push_back(records[at]);
  }

  // A place in the order of all runs, for record().
  std::uint64_t added() const { return handed_out_ + waiting_.size(); }

  // What became of runs: of each first that it has ended, and then or later the times of its
  // events. All that was reported of the runs up to `added` is among it.
  void record(const Result* results, std::size_t count, std::uint64_t added, std::int64_t now_ns) {
    reported_up_to_ = added;
    for (std::size_t at = 0; at < count; ++at) {
      const Result& one = results[at];
      const auto [found, is_new] = results_.emplace(one.span, Kept{one.outcome, one.busy_ns});
      if (is_new) order_.emplace_back(one.span, now_ns);
      if (found->second.outcome == Outcome::kPending) found->second = {one.outcome, one.busy_ns};
    }
    while (!order_.empty() &&
           (now_ns - order_.front().second >= kKeptNs || order_.size() > kMax)) {
      results_.erase(order_.front().first);
      order_.pop_front();
    }
  }

  void drain_ready(std::int64_t now_ns, std::vector<Record>& out) {
    while (!waiting_.empty()) {
      Verdict verdict = judge(waiting_.front(), now_ns);
      if (verdict.state == GpuState::kAwaited && waiting_.size() > kMax) verdict = kGivenUp;
      if (verdict.state == GpuState::kAwaited) return;
      hand_out(verdict, out);
    }
  }

  // All that waits; a run whose numbers are not there is missing.
  void drain_all(std::int64_t now_ns, std::vector<Record>& out) {
    while (!waiting_.empty()) {
      const Verdict verdict = judge(waiting_.front(), now_ns);
      hand_out(verdict.state == GpuState::kAwaited ? kGivenUp : verdict, out);
    }
  }

  std::size_t size() const { return waiting_.size(); }
  std::size_t kept_results() const { return results_.size(); }
  const RunCounts& counts() const { return counts_; }

 private:
  static constexpr std::int64_t kOpen = INT64_MAX;

  struct Kept {
    Outcome outcome;
    std::int64_t busy_ns;
  };
  struct Verdict {
    GpuState state;
    Outcome outcome;
    std::int64_t busy_ns;
  };
  static constexpr Verdict kOff{GpuState::kOff, Outcome::kOutside, 0};
  static constexpr Verdict kAwaited{GpuState::kAwaited, Outcome::kPending, 0};
  static constexpr Verdict kGivenUp{GpuState::kMissing, Outcome::kLate, 0};
  static constexpr Verdict kUnreported{GpuState::kMissing, Outcome::kUnreported, 0};

  // Of the oldest run.
  Verdict judge(const Record& record, std::int64_t now_ns) const {
    const auto found = results_.find(record.span);
    if (found == results_.end()) return judge_unreported(record, now_ns);
    if (found->second.outcome != Outcome::kPending) return verdict_of(found->second);
    return now_ns - record.end_ns >= kPatienceNs ? kGivenUp : kAwaited;
  }

  // One that its thread has not reported, or not yet.
  Verdict judge_unreported(const Record& record, std::int64_t now_ns) const {
    const bool is_before = record.start_ns >= idle_since_ns_ && record.end_ns <= timed_since_ns_;
    if (is_before || record.start_ns >= timed_until_ns_) return kOff;
    const bool is_across = record.start_ns < timed_since_ns_ || record.end_ns > timed_until_ns_;
    const bool is_final = handed_out_ < reported_up_to_ || now_ns - record.end_ns >= kPatienceNs;
    return is_across || is_final ? kUnreported : kAwaited;
  }

  static Verdict verdict_of(const Kept& kept) {
    if (kept.outcome == Outcome::kTimed) {
      return {GpuState::kTimedByEvents, kept.outcome, kept.busy_ns};
    }
    const bool is_off = kept.outcome == Outcome::kNoContext;
    return {is_off ? GpuState::kOff : GpuState::kMissing, kept.outcome, 0};
  }

  void hand_out(const Verdict& verdict, std::vector<Record>& out) {
    Record& record = waiting_.front();
    record.gpu = GpuSlot{};
    record.gpu.state = verdict.state;
    if (verdict.state == GpuState::kTimedByEvents) {
      record.gpu.kernel_time_ns = record.gpu.nccl_time_ns = -1;
      record.gpu.busy_time_ns = verdict.busy_ns;
      ++counts_.timed;
    } else if (verdict.state == GpuState::kMissing) {
      ++counts_.missing;
    }
    ++counts_.by_outcome[static_cast<std::size_t>(verdict.outcome)];
    results_.erase(record.span);
    ++handed_out_;
    out.push_back(record);
    waiting_.pop_front();
  }

  std::deque<Record> waiting_;
  std::uint64_t handed_out_ = 0;
  std::uint64_t reported_up_to_ = 0;
  std::unordered_map<std::uint64_t, Kept> results_;
  std::deque<std::pair<std::uint64_t, std::int64_t>> order_;  // of results, the oldest first
  RunCounts counts_;
  std::int64_t idle_since_ns_ = 0;  // until timing was begun, the last time
  std::int64_t timed_since_ns_ = kOpen;
  std::int64_t timed_until_ns_ = 0;
};

}  // namespace otel_straggler::events
