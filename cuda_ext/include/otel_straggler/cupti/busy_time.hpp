// In how much of the time at least one of several intervals lay: kernels on several streams
// overlap, and the sum of their durations counts that time twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace otel_straggler::cupti {

struct Interval {
  std::uint64_t start_ns;
  std::uint64_t end_ns;
};

// Intervals may come in any order. Exact, unless more than kMaxIntervals lie apart: then the older
// half is settled, and what comes late and overlaps it is counted again.
class BusyTime {
 public:
  static constexpr std::size_t kMaxIntervals = 8'192;

  void add(const Interval& interval) {
    if (!intervals_.empty()) {
      Interval& last = intervals_.back();
      if (interval.start_ns >= last.start_ns && interval.start_ns <= last.end_ns) {
        last.end_ns = std::max(last.end_ns, interval.end_ns);
        return;
      }
      is_sorted_ = is_sorted_ && interval.start_ns > last.end_ns;
    }
    if (intervals_.size() >= kMaxIntervals) make_room();
    intervals_.push_back(interval);
  }

  void add(BusyTime& other) {
    settled_ns_ += other.settled_ns_;
    for (const Interval& interval : other.intervals_) add(interval);
  }

  std::uint64_t total_ns() {
    join();
    std::uint64_t total = settled_ns_;
    for (const Interval& interval : intervals_) total += interval.end_ns - interval.start_ns;
    return total;
  }

  std::size_t size() const { return intervals_.size(); }
  void reserve() { intervals_.reserve(32); }
  std::size_t bytes() const { return intervals_.capacity() * sizeof(Interval); }

  void clear() {
    intervals_.clear();
    settled_ns_ = 0;
    is_sorted_ = true;
  }

 private:
  // Sorts, and lets overlapping ones become one.
  void join() {
    if (is_sorted_) return;
    std::sort(intervals_.begin(), intervals_.end(),
              [](const Interval& a, const Interval& b) { return a.start_ns < b.start_ns; });
    std::size_t last = 0;
    for (std::size_t at = 1; at < intervals_.size(); ++at) {
      if (intervals_[at].start_ns <= intervals_[last].end_ns) {
        intervals_[last].end_ns = std::max(intervals_[last].end_ns, intervals_[at].end_ns);
      } else {
        intervals_[++last] = intervals_[at];
      }
    }
    intervals_.resize(last + 1);
    is_sorted_ = true;
  }

  void make_room() {
    join();
    if (intervals_.size() < kMaxIntervals / 2) return;
    const auto middle = intervals_.begin() + static_cast<std::ptrdiff_t>(intervals_.size() / 2);
    for (auto at = intervals_.begin(); at != middle; ++at) settled_ns_ += at->end_ns - at->start_ns;
    intervals_.erase(intervals_.begin(), middle);
  }

  std::vector<Interval> intervals_;
  std::uint64_t settled_ns_ = 0;
  bool is_sorted_ = true;  // and disjoint
};

}  // namespace otel_straggler::cupti
