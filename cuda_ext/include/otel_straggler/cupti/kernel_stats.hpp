// What was seen of each kernel in each section since it was last asked for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/histogram.hpp"
#include "otel_straggler/record.hpp"

namespace otel_straggler::cupti {

// What each kernel writes to, in one line of the processor's cache.
struct alignas(64) KernelTimes {
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t min_ns = UINT64_MAX;
  std::uint64_t max_ns = 0;
  Histogram histogram;
};
static_assert(sizeof(KernelTimes) == 64);

struct KernelCell : KernelTimes {
  std::uint32_t kernel = 0;   // its name's number
  std::uint32_t section = 0;  // kNoSection: in none, or unknown
};

// Cells of (kernel, section), a bounded number. Further ones are counted under the kernel `<other>`
// of their class, which always finds room.
//
// A cell is seldom in the processor's cache, and would be waited for twice: itself, then its
// bucket. So each is asked for some kernels before it is needed.
class KernelStats {
 public:
  static constexpr std::size_t kMaxCells = 8'192;

  // other: the number of `<other>` of the kernel's class.
  void add(std::uint32_t kernel, std::uint32_t other, std::uint32_t section,
           std::uint64_t duration_ns) {
    const std::uint32_t cell = cell_of(kernel, other, section);
    __builtin_prefetch(&times_[cell], 1);
    const Duration next = std::exchange(durations_[turn_], {cell, duration_ns});
    if (next.cell != kEmpty) count(next);
    turn_ = (turn_ + 1) % kAhead;
  }

  // All cells; counting restarts.
  std::vector<KernelCell> drain() {
    settle();
    std::vector<KernelCell> cells;
    cells.reserve(times_.size());
    for (std::size_t at = 0; at < times_.size(); ++at) {
      cells.push_back({std::move(times_[at]), keys_[at].kernel, keys_[at].section});
    }
    rows_.clear();
    last_row_ = nullptr;
    times_ = {};
    keys_ = {};
    return cells;
  }

  std::size_t size() const { return times_.size(); }
  std::uint64_t left_out() const { return left_out_; }

  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto& [section, row] : rows_) bytes += row.capacity() * sizeof(row[0]);
    for (const KernelTimes& times : times_) {
      bytes += sizeof(KernelTimes) + sizeof(Key);
      bytes += times.histogram.buckets.capacity() * sizeof(std::uint32_t);
    }
    return bytes;
  }

 private:
  static constexpr std::size_t kMaxOthers = 3'075;  // classes times sections, and none
  static constexpr std::size_t kMaxSections = 1'024;  // further ones count as none
  static constexpr std::size_t kAhead = 8;
  static constexpr std::uint32_t kEmpty = UINT32_MAX;

  using Row = std::vector<std::uint16_t>;  // by kernel: one more than its cell, or 0
  struct Key {
    std::uint32_t kernel;
    std::uint32_t section;
  };
  struct Duration {
    std::uint32_t cell = kEmpty;
    std::uint64_t ns = 0;
  };
  struct Bucket {
    std::uint32_t cell = kEmpty;
    std::int32_t index = 0;
  };

  void count(const Duration& it) {
    KernelTimes& cell = times_[it.cell];
    ++cell.count;
    cell.sum_ns += it.ns;
    cell.min_ns = std::min(cell.min_ns, it.ns);
    cell.max_ns = std::max(cell.max_ns, it.ns);
    Bucket next;
    if (it.ns > 0) {
      const std::int32_t index = index_(it.ns);
      cell.histogram.prefetch(index);
      next = {it.cell, index};
    }
    count(std::exchange(buckets_[turn_], next));
  }

  void count(const Bucket& it) {
    if (it.cell != kEmpty) times_[it.cell].histogram.add(it.index);
  }

  // Counts what was put off.
  void settle() {
    for (Duration& it : durations_) {
      if (it.cell != kEmpty) count(std::exchange(it, {}));
    }
    for (Bucket& it : buckets_) count(std::exchange(it, {}));
  }

  std::uint32_t cell_of(std::uint32_t kernel, std::uint32_t other, std::uint32_t section) {
    Row& row = row_of(section);
    if (kernel >= row.size()) row.resize(kernel + 1, 0);
    if (row[kernel] != 0) return row[kernel] - 1U;
    if (times_.size() >= kMaxCells && kernel != other) {
      ++left_out_;
      return cell_of(other, other, section);
    }
    const auto cell = static_cast<std::uint32_t>(times_.size());
    times_.emplace_back();
    keys_.push_back({kernel, last_section_});
    row[kernel] = static_cast<std::uint16_t>(cell + 1);
    return cell;
  }

  Row& row_of(std::uint32_t section) {
    if (last_row_ != nullptr && section == asked_section_) return *last_row_;
    asked_section_ = last_section_ = section;
    const bool has_room = rows_.size() < kMaxSections || rows_.count(section) != 0;
    if (!has_room) last_section_ = kNoSection;
    last_row_ = &rows_[last_section_];
    return *last_row_;
  }

  BucketIndex index_;
  std::unordered_map<std::uint32_t, Row> rows_;  // by section
  Row* last_row_ = nullptr;
  std::uint32_t asked_section_ = 0;
  std::uint32_t last_section_ = 0;
  std::vector<KernelTimes> times_;  // by cell
  std::vector<Key> keys_;           // the same
  std::array<Duration, kAhead> durations_{};  // to be counted, the next one at turn_
  std::array<Bucket, kAhead> buckets_{};
  std::size_t turn_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace otel_straggler::cupti
