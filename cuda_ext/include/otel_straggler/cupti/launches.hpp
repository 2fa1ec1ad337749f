// The other way to determine which run launched a kernel: CUPTI calls us at every launch, on the
// thread that launches, and we write down which run is current there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "otel_straggler/cupti/current_run.hpp"
#include "otel_straggler/cupti/marks.hpp"

namespace otel_straggler::cupti {

class Launches {
 public:
  static constexpr std::size_t kPlaces = std::size_t{1} << 18;  // launches that are on their way

  Launches() : places_(std::make_unique<std::atomic<std::uint64_t>[]>(kPlaces)) {
    for (std::size_t at = 0; at < kPlaces; ++at) places_[at] = 0;
  }

  // On the launching thread.
  void record(std::uint32_t correlation, Run run) noexcept {
    places_[correlation % kPlaces].store(std::uint64_t{correlation} << 32 | run,
                                         std::memory_order_relaxed);
    newest_.store(correlation, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  Answer find(std::uint32_t correlation) const noexcept {
    const std::uint64_t found = places_[correlation % kPlaces].load(std::memory_order_relaxed);
    if (found >> 32 != correlation) return {Knowledge::kLost, kNoRun};
    const auto run = static_cast<Run>(found);
    return {run == kNoRun ? Knowledge::kUnattributed : Knowledge::kKnown, run};
  }

  std::uint32_t newest() const noexcept { return newest_.load(std::memory_order_relaxed); }
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> places_;
  std::atomic<std::uint32_t> newest_{0};
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace otel_straggler::cupti
