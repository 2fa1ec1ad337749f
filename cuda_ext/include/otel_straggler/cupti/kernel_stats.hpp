// What was seen of each kernel in each section since it was last asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "otel_straggler/cupti/histogram.hpp"

namespace otel_straggler::cupti {

struct KernelCell {
  std::uint32_t kernel = 0;   // its name's number
  std::uint32_t section = 0;  // kNoSection: in none, or nobody knows
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t min_ns = UINT64_MAX;
  std::uint64_t max_ns = 0;
  Histogram histogram;
};

// Cells of (kernel, section), a bounded number. Further ones are counted under the kernel `<other>`
// of their class, which always finds room.
class KernelStats {
 public:
  static constexpr std::size_t kMostCells = 8'192;

  KernelStats() : places_(kPlaces, kEmpty) {}

  // other: the number of `<other>` of the kernel's class.
  void add(std::uint32_t kernel, std::uint32_t other, std::uint32_t section,
           std::uint64_t duration_ns) {
    KernelCell& cell = cell_of(kernel, other, section);
    ++cell.count;
    cell.sum_ns += duration_ns;
    cell.min_ns = std::min(cell.min_ns, duration_ns);
    cell.max_ns = std::max(cell.max_ns, duration_ns);
    if (duration_ns > 0) cell.histogram.add(index_(duration_ns));
  }

  // All cells; counting begins anew.
  std::vector<KernelCell> take() {
    places_.assign(kPlaces, kEmpty);
    return std::exchange(cells_, {});
  }

  std::size_t size() const { return cells_.size(); }
  std::uint64_t left_out() const { return left_out_; }

  std::size_t bytes() const {
    std::size_t bytes = places_.capacity() * sizeof(std::uint32_t);
    for (const KernelCell& cell : cells_) {
      bytes += sizeof(KernelCell) + cell.histogram.buckets.capacity() * sizeof(std::uint32_t);
    }
    return bytes;
  }

 private:
  static constexpr std::size_t kPlaces = 4 * kMostCells;
  static constexpr std::uint32_t kEmpty = UINT32_MAX;

  KernelCell& cell_of(std::uint32_t kernel, std::uint32_t other, std::uint32_t section) {
    std::size_t place = place_of(kernel, section);
    for (; places_[place] != kEmpty; place = (place + 1) & (kPlaces - 1)) {
      KernelCell& found = cells_[places_[place]];
      if (found.kernel == kernel && found.section == section) return found;
    }
    if (cells_.size() >= kMostCells && kernel != other) {
      ++left_out_;
      return cell_of(other, other, section);
    }
    if (cells_.size() >= kMostCells + kMostOthers) return cells_.back();
    places_[place] = static_cast<std::uint32_t>(cells_.size());
    cells_.emplace_back();
    cells_.back().kernel = kernel;
    cells_.back().section = section;
    return cells_.back();
  }

  static std::size_t place_of(std::uint32_t kernel, std::uint32_t section) {
    const std::uint64_t key = std::uint64_t{section} << 32 | kernel;
    return static_cast<std::size_t>((key * 0x9E37'79B9'7F4A'7C15U) >> 40) & (kPlaces - 1);
  }

  static constexpr std::size_t kMostOthers = 1'024;  // sections times classes

  BucketIndex index_;
  std::vector<std::uint32_t> places_;
  std::vector<KernelCell> cells_;
  std::uint64_t left_out_ = 0;
};

}  // namespace otel_straggler::cupti
