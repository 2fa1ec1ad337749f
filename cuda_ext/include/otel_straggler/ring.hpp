// A bounded queue of records: any thread adds, one at a time drains. No call ever blocks.
//
// Record::sequence says whose turn a place is. It counts from the beginning of the lap, so that
// memory full of zeros is an empty ring: lap = free, lap + 1 = filled, lap + capacity = free again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "otel_straggler/record.hpp"

namespace otel_straggler {

inline constexpr std::uint64_t kRingCapacity = 65'536;

// The numbers of a ring. They lie next to its records, where a reader in another process finds
// them.
struct RingControl {
  alignas(64) std::atomic<std::uint64_t> tail;  // the next place to fill
  alignas(64) std::atomic<std::uint64_t> head;  // the next place to drain
  std::atomic<std::uint64_t> dropped;
};

class Ring {
 public:
  // capacity: a power of two, at least 2. The memory is the caller's, and is zeros at first.
  Ring(RingControl& control, Record* places, std::uint64_t capacity)
      : control_(&control), places_(places), capacity_(capacity) {}

  std::uint64_t capacity() const { return capacity_; }

  // Filled places; while others add or drain, a moment ago.
  std::uint64_t size() const {
    const std::uint64_t head = control_->head.load(std::memory_order_acquire);
    const std::uint64_t tail = control_->tail.load(std::memory_order_acquire);
    return tail > head ? tail - head : 0;
  }

  std::uint64_t dropped() const { return control_->dropped.load(std::memory_order_relaxed); }

  void count_dropped() { control_->dropped.fetch_add(1, std::memory_order_relaxed); }

  // False if the ring is full; the record is then neither kept nor counted.
  bool add(const Record& record) {
    return add_with([&record](Record& place) { fill(place, record); });
  }

  // The same with a record that `put` writes into its place, but for the sequence.
  template <typename Put>
  bool add_with(Put put) {
    std::uint64_t place = control_->tail.load(std::memory_order_relaxed);
    for (;;) {
      Record& found = places_[place & (capacity_ - 1)];
      const std::uint64_t lap = place & ~(capacity_ - 1);
      const auto ahead = static_cast<std::int64_t>(turn(found) - lap);
      if (ahead < 0) return false;
      if (ahead > 0) {
        place = control_->tail.load(std::memory_order_relaxed);
      } else if (control_->tail.compare_exchange_weak(place, place + 1,
                                                      std::memory_order_relaxed)) {
        put(found);
        set_turn(found, lap + 1);
        return true;
      }
    }
  }

  // Takes up to `most` records in order of their places; one thread at a time.
  std::size_t drain(Record* records, std::size_t max_records) {
    std::uint64_t place = control_->head.load(std::memory_order_relaxed);
    std::size_t taken = 0;
    for (; taken < max_records; ++taken, ++place) {
      Record& found = places_[place & (capacity_ - 1)];
      const std::uint64_t lap = place & ~(capacity_ - 1);
      if (turn(found) != lap + 1) break;
      fill(records[taken], found);
      records[taken].sequence = place;
      set_turn(found, lap + capacity_);
    }
    control_->head.store(place, std::memory_order_release);
    return taken;
  }

  // Throws away what is in it, and the count of what was not; one thread at a time.
  void clear() {
    Record record;
    for (std::uint64_t left = size(); left > 0 && drain(&record, 1) == 1; --left) {
    }
    control_->dropped.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kBefore = offsetof(Record, sequence);
  static constexpr std::size_t kAfter = offsetof(Record, gpu);

  static std::uint64_t turn(const Record& place) {
    return __atomic_load_n(&place.sequence, __ATOMIC_ACQUIRE);
  }

  static void set_turn(Record& place, std::uint64_t turn) {
    __atomic_store_n(&place.sequence, turn, __ATOMIC_RELEASE);
  }

  // Everything but the sequence, which other threads are reading.
  static void fill(Record& to, const Record& from) {
    auto* target = reinterpret_cast<unsigned char*>(&to);
    const auto* source = reinterpret_cast<const unsigned char*>(&from);
    std::memcpy(target, source, kBefore);
    std::memcpy(target + kAfter, source + kAfter, sizeof(Record) - kAfter);
  }

  RingControl* control_;
  Record* places_;
  std::uint64_t capacity_;
};

}  // namespace otel_straggler
