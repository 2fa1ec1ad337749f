// Watches how many timestamps are invalid: CUPTI on some versions loses all of them after some
// millions of kernels, and says nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace otel_straggler::cupti {

class InvalidWatch {
 public:
  // All so far, at each flush.
  void record(std::uint64_t events, std::uint64_t invalid) {
    moments_.push_back({events, invalid});
    if (moments_.size() > kFlushes) moments_.pop_front();
  }

  // More than 1 % of those of the last flushes, once there are enough to say.
  bool is_too_often() const {
    if (moments_.empty()) return false;
    const std::uint64_t events = moments_.back().events - moments_.front().events;
    const std::uint64_t invalid = moments_.back().invalid - moments_.front().invalid;
    return events >= kEnough && invalid * 100 > events;
  }

 private:
  static constexpr std::size_t kFlushes = 20;
  static constexpr std::uint64_t kEnough = 1'000;

  struct Moment {
    std::uint64_t events;
    std::uint64_t invalid;
  };
  std::deque<Moment> moments_{Moment{0, 0}};
};

}  // namespace otel_straggler::cupti
