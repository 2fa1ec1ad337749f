// Buffers for CUPTI to write records into: a bounded number of them, zeroed beforehand, and never
// given back to the system, because CUPTI may write into one long after all else has ended.
//
// acquire() and complete() run inside CUPTI, on threads that launch kernels: they take no lock and
// touch no memory. The rest is the worker's.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace otel_straggler::cupti {

struct CompletedBuffer {
  std::uint8_t* bytes;
  std::size_t valid_bytes;
};

class BufferPool {
 public:
  // bytes: of a buffer, a multiple of 8. count: of buffers, at most.
  BufferPool(std::size_t bytes, std::size_t count) : bytes_(bytes), count_(count) {
    places_ = std::make_unique<Place[]>(count + 1);
    void* const memory = ::mmap(nullptr, bytes * (count + 1), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) memory_ = static_cast<std::uint8_t*>(memory);
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  bool has_memory() const { return memory_ != nullptr; }
  std::size_t bytes() const { return bytes_; }

  // A zeroed buffer; null if all are out.
  std::uint8_t* acquire() noexcept {
    if (memory_ == nullptr) return nullptr;
    std::uint32_t place = pop();
    if (place == kNone) place = next_untouched();
    if (place == kNone) return nullptr;
    out_.fetch_add(1, std::memory_order_relaxed);
    places_[place].is_out.store(true, std::memory_order_release);
    return at(place);
  }

  // For a CUPTI that does not survive being given none: what is written there is lost.
  std::uint8_t* scratch() noexcept {
    return memory_ == nullptr ? nullptr : at(static_cast<std::uint32_t>(count_));
  }

  // From CUPTI. False if it is not a buffer of ours that was out.
  bool complete(std::uint8_t* buffer, std::size_t valid_bytes) noexcept {
    const std::uint32_t place = place_of(buffer);
    if (place == kNone || !places_[place].is_out.exchange(false, std::memory_order_acq_rel)) {
      return false;
    }
    places_[place].valid_bytes = std::min(valid_bytes, bytes_);
    std::uint32_t head = completed_.load(std::memory_order_relaxed);
    do {
      places_[place].next.store(head, std::memory_order_relaxed);
    } while (!completed_.compare_exchange_weak(head, place, std::memory_order_release,
                                               std::memory_order_relaxed));
    return true;
  }

  bool is_scratch(const std::uint8_t* buffer) const {
    return memory_ != nullptr && buffer == memory_ + bytes_ * count_;
  }

  // Appends what has come back, the oldest first.
  void drain_completed(std::vector<CompletedBuffer>& buffers) {
    const auto first = static_cast<std::ptrdiff_t>(buffers.size());
    std::uint32_t place = completed_.exchange(kNone, std::memory_order_acquire);
    for (; place != kNone; place = places_[place].next.load(std::memory_order_relaxed)) {
      buffers.push_back({at(place), places_[place].valid_bytes});
    }
    std::reverse(buffers.begin() + first, buffers.end());
  }

  // Zeroes what has been read and offers it again. All of it: who knows what lies behind the valid.
  void give_back(const CompletedBuffer& buffer) {
    std::memset(buffer.bytes, 0, bytes_);
    push(place_of(buffer.bytes));
    out_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Touches fresh buffers until so many lie ready, so that no launch has to.
  void prepare(std::size_t spare) {
    if (memory_ == nullptr) return;
    while (free_.load(std::memory_order_relaxed) < spare) {
      const std::uint32_t place = next_untouched();
      if (place == kNone) return;
      std::memset(at(place), 0, bytes_);
      push(place);
    }
  }

  // With CUPTI, or not yet read.
  std::size_t out() const { return out_.load(std::memory_order_relaxed); }
  std::size_t touched() const { return std::min<std::size_t>(untouched_.load(), count_); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Place {
    std::atomic<std::uint32_t> next{kNone};
    std::atomic<bool> is_out{false};
    std::size_t valid_bytes = 0;
  };

  std::uint8_t* at(std::uint32_t place) const { return memory_ + bytes_ * place; }

  std::uint32_t place_of(const std::uint8_t* buffer) const {
    if (memory_ == nullptr || buffer < memory_) return kNone;
    const auto offset = static_cast<std::size_t>(buffer - memory_);
    if (offset % bytes_ != 0 || offset / bytes_ >= count_) return kNone;
    return static_cast<std::uint32_t>(offset / bytes_);
  }

  std::uint32_t next_untouched() noexcept {
    if (untouched_.load(std::memory_order_relaxed) >= count_) return kNone;
    const std::size_t place = untouched_.fetch_add(1, std::memory_order_relaxed);
    return place < count_ ? static_cast<std::uint32_t>(place) : kNone;
  }

  // The head carries a number that changes each time: a place that has come and gone since
  // is not taken for the same.
  std::uint32_t pop() noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      const auto place = static_cast<std::uint32_t>(head);
      if (place == kNone) return kNone;
      const std::uint32_t next = places_[place].next.load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, next_head(head, next), std::memory_order_acquire)) {
        free_.fetch_sub(1, std::memory_order_relaxed);
        return place;
      }
    }
  }

  void push(std::uint32_t place) {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      places_[place].next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, next_head(head, place), std::memory_order_release,
                                          std::memory_order_relaxed));
    free_.fetch_add(1, std::memory_order_relaxed);
  }

  static std::uint64_t next_head(std::uint64_t head, std::uint32_t place) {
    return ((head >> 32) + 1) << 32 | place;
  }

  std::size_t bytes_;
  std::size_t count_;
  std::uint8_t* memory_ = nullptr;
  std::unique_ptr<Place[]> places_;
  std::atomic<std::uint64_t> head_{kNone};
  std::atomic<std::uint32_t> completed_{kNone};
  std::atomic<std::size_t> untouched_{0};
  std::atomic<std::size_t> free_{0};
  std::atomic<std::size_t> out_{0};
};

}  // namespace otel_straggler::cupti
