// Several runs of a section in one step as one span: exact count, sum, shortest and longest, and a
// sketch of the lengths.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "encode_names.hpp"
#include "record.hpp"
#include "sketch.hpp"

namespace otel_straggler::encoding {

inline constexpr std::uint32_t kMaxFolded = 4096;  // runs in one span
inline constexpr std::uint64_t kLongestFolded = 1ULL << 50;  // ns; a longer run is no hot one

inline std::uint64_t length_of(const Record& run) {
  if (run.end_ns <= run.start_ns) return 1;
  return static_cast<std::uint64_t>(run.end_ns) - static_cast<std::uint64_t>(run.start_ns);
}

// Runs that are folded have all of this in common.
struct FoldKey {
  std::uint32_t epoch;
  std::uint32_t section;
  std::uint32_t around;  // number of the name of the section around it; kNoSection: none
  std::uint32_t phase;
  std::uint32_t fields;
  std::uint64_t step_span;
  std::int64_t trace;  // step, or window of time without one

  bool operator==(const FoldKey& other) const {
    return epoch == other.epoch && section == other.section && around == other.around &&
           phase == other.phase && fields == other.fields && step_span == other.step_span &&
           trace == other.trace;
  }
};

// GPU time of several runs together, and what they waited.
struct GpuSums {
  std::uint64_t kernel_time_ns = 0;
  std::uint64_t busy_time_ns = 0;
  std::uint64_t nccl_time_ns = 0;
  std::uint64_t kernel_count = 0;
  std::uint64_t waited_ns = 0;

  void add(const GpuSlot& slot) {
    waited_ns += static_cast<std::uint64_t>(waited_ns_of(slot));
    kernel_time_ns += static_cast<std::uint64_t>(slot.kernel_time_ns);
    busy_time_ns += static_cast<std::uint64_t>(slot.busy_time_ns);
    nccl_time_ns += static_cast<std::uint64_t>(slot.nccl_time_ns);
    kernel_count += slot.kernel_count;
  }
};

struct Fold {
  Record first{};
  std::uint64_t runs = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t min_ns = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ns = 0;
  std::uint64_t end_ns = 0;
  std::size_t last_place = 0;
  std::uint64_t tokens = 0;
  GpuSums gpu{};
  std::vector<std::uint16_t> buckets;
};

// The folds of one batch.
class Folds {
 public:
  static constexpr std::uint32_t kSingle = std::numeric_limits<std::uint32_t>::max();

  void begin(std::size_t places) {
    of_place_.assign(places, kSingle);
    open_.clear();
    used_ = 0;
  }

  void add(std::size_t place, const Record& run, const FoldKey& key) {
    const auto [at, is_new] = open_.try_emplace(key, 0U);
    if (is_new || folds_[at->second].runs == kMaxFolded) at->second = open_one(run);
    of_place_[place] = at->second;
    merge(folds_[at->second], run, place);
  }

  // Null if the run at this place is sent by itself.
  Fold* at(std::size_t place) {
    if (place >= of_place_.size() || of_place_[place] == kSingle) return nullptr;
    return &folds_[of_place_[place]];
  }

 private:
  struct Hash {
    std::size_t operator()(const FoldKey& key) const {
      std::uint64_t mixed = key.step_span;
      for (const std::uint64_t part :
           {static_cast<std::uint64_t>(key.trace),
            static_cast<std::uint64_t>(key.epoch) << 32 | key.section,
            static_cast<std::uint64_t>(key.around) << 32 | key.phase,
            static_cast<std::uint64_t>(key.fields)}) {
        mixed = (mixed ^ part) * 0x9E3779B97F4A7C15U;
        mixed ^= mixed >> 32;
      }
      return static_cast<std::size_t>(mixed);
    }
  };

  std::uint32_t open_one(const Record& run) {
    if (used_ == folds_.size()) folds_.emplace_back();
    Fold& fold = folds_[used_];
    std::vector<std::uint16_t> kept = std::move(fold.buckets);
    kept.clear();
    fold = Fold{};
    fold.first = run;
    fold.buckets = std::move(kept);
    return static_cast<std::uint32_t>(used_++);
  }

  static void merge(Fold& fold, const Record& run, std::size_t place) {
    const std::uint64_t length = length_of(run);
    fold.runs += 1;
    fold.sum_ns += length;
    fold.min_ns = std::min(fold.min_ns, length);
    fold.max_ns = std::max(fold.max_ns, length);
    fold.first.start_ns = std::min(fold.first.start_ns, run.start_ns);
    fold.end_ns = later(fold, static_cast<std::uint64_t>(run.start_ns) + length);
    fold.last_place = place;
    if (run.tokens > 0) fold.tokens = sum(fold.tokens, static_cast<std::uint64_t>(run.tokens));
    fold.gpu.add(run.gpu);
    fold.buckets.push_back(sketch_bucket(length));
  }

  static std::uint64_t later(const Fold& fold, std::uint64_t end_ns) {
    if (fold.runs == 1) return end_ns;
    const bool is_later =
        static_cast<std::int64_t>(end_ns) > static_cast<std::int64_t>(fold.end_ns);
    return is_later ? end_ns : fold.end_ns;
  }

  static std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
    return a > limit - b ? limit : a + b;
  }

  std::vector<std::uint32_t> of_place_;
  std::vector<Fold> folds_;
  std::size_t used_ = 0;
  std::unordered_map<FoldKey, std::uint32_t, Hash> open_;
};

}  // namespace otel_straggler::encoding
