// Kernels whose mark has not come back, the oldest first, in lots: for each lot it is known from
// which correlation id on its kernels are, so one that nothing has come for is passed over whole.
//
// Looking again costs as much as there are kernels to settle, and some hundred comparisons; a queue
// that is full forever, because marks are lost, is not scanned with every mark.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/correlation.hpp"
#include "otel_straggler/cupti/walk.hpp"

namespace otel_straggler::cupti {

struct ParkedKernel {
  GpuEvent event;
  WideId id;  // of its launch, as far as known: never more than it is
  std::uint32_t kernel;
  bool is_valid;
  std::int64_t since_ns;
};

class ParkedKernels {
 public:
  static constexpr std::size_t kMax = 65'536;  // 4 MiB, 8 where lots are half empty

  bool is_full() const { return size_ >= kMax; }
  std::size_t size() const { return size_; }
  std::size_t lots() const { return lots_.size(); }
  // No kernel has a smaller id.
  WideId first() const { return first_; }
  // How often a kernel was examined again, in total.
  std::uint64_t examined() const { return examined_; }

  void push(const ParkedKernel& one) {
    if (lots_.empty() || lots_.back().kernels.size() >= kOfLot) {
      lots_.emplace_back();
      lots_.back().kernels.reserve(kOfLot);
    }
    lots_.back().add(one);
    record(one.id, one.since_ns);
    ++size_;
  }

  // Examines all whose id is up to `reach`, or that have been here since `until_ns` or longer.
  // settle: of a kernel; whether it is done with. One that is not may get another id.
  template <typename Settle>
  void poll(WideId reach, std::int64_t until_ns, const Settle& settle) {
    const auto is_due = [&](WideId id, std::int64_t since_ns) {
      return id <= reach || since_ns <= until_ns;
    };
    if (size_ == 0 || !is_due(first_, since_ns_)) return;
    std::size_t kept = 0;
    for (std::size_t at = 0; at < lots_.size(); ++at) {
      Lot& lot = lots_[at];
      if (is_due(lot.first, lot.since_ns)) sift(lot, is_due, settle);
      if (kept > 0 && lots_[kept - 1].takes(lot)) continue;  // so that they stay few
      if (kept != at) lots_[kept] = std::move(lot);
      if (!lots_[kept].kernels.empty()) ++kept;
    }
    lots_.resize(kept);
    sum_up();
  }

  void clear() {
    lots_.clear();
    sum_up();
  }

 private:
  static constexpr std::size_t kOfLot = 256;
  static constexpr WideId kNoId = std::numeric_limits<WideId>::max();
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Lot {
    std::vector<ParkedKernel> kernels;
    WideId first = kNoId;
    std::int64_t since_ns = kNever;

    void add(const ParkedKernel& one) {
      kernels.push_back(one);
      record(one);
    }

    void record(const ParkedKernel& one) {
      first = std::min(first, one.id);
      since_ns = std::min(since_ns, one.since_ns);
    }

    bool takes(const Lot& next) {
      if (kernels.size() + next.kernels.size() > kOfLot) return false;
      for (const ParkedKernel& one : next.kernels) add(one);
      return true;
    }
  };

  template <typename IsDue, typename Settle>
  void sift(Lot& lot, const IsDue& is_due, const Settle& settle) {
    examined_ += lot.kernels.size();
    Lot kept;
    std::size_t place = 0;
    for (ParkedKernel one : lot.kernels) {
      if (is_due(one.id, one.since_ns) && settle(one)) continue;
      kept.record(one);
      lot.kernels[place++] = one;
    }
    lot.kernels.resize(place);
    lot.first = kept.first;
    lot.since_ns = kept.since_ns;
  }

  void record(WideId first, std::int64_t since_ns) {
    first_ = std::min(first_, first);
    since_ns_ = std::min(since_ns_, since_ns);
  }

  void sum_up() {
    first_ = kNoId;
    since_ns_ = kNever;
    size_ = 0;
    for (const Lot& lot : lots_) {
      record(lot.first, lot.since_ns);
      size_ += lot.kernels.size();
    }
  }

  std::vector<Lot> lots_;
  WideId first_ = kNoId;  // of all, and the next one too
  std::int64_t since_ns_ = kNever;
  std::size_t size_ = 0;
  std::uint64_t examined_ = 0;
};

}  // namespace otel_straggler::cupti
