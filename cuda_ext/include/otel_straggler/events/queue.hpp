// A queue of fixed length from one thread to another; neither ever waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace otel_straggler::events {

template <typename Item>
class Queue {
 public:
  // least: so many fit.
  explicit Queue(std::size_t min_size) : size_(power_of_two(min_size)), items_(new Item[size_]()) {}

  // Of the one thread that puts in. False if it is full.
  bool push(const Item& item) {
    const std::size_t at = put_.load(std::memory_order_relaxed);
    if (at - taken_seen_ == size_) {
      taken_seen_ = taken_.load(std::memory_order_acquire);
      if (at - taken_seen_ == size_) return false;
    }
    items_[at & (size_ - 1)] = item;
    put_.store(at + 1, std::memory_order_release);
    return true;
  }

  // Of the one thread that takes out. False if it is empty.
  bool pop(Item& item) {
    const std::size_t at = taken_.load(std::memory_order_relaxed);
    if (at == put_.load(std::memory_order_acquire)) return false;
    item = items_[at & (size_ - 1)];
    taken_.store(at + 1, std::memory_order_release);
    return true;
  }

  // Of any thread; others may be at it.
  std::size_t size() const {
    const std::size_t taken = taken_.load(std::memory_order_acquire);
    return put_.load(std::memory_order_acquire) - taken;
  }

 private:
  static std::size_t power_of_two(std::size_t min_size) {
    std::size_t size = 2;
    while (size < min_size) size *= 2;
    return size;
  }

  const std::size_t size_;
  const std::unique_ptr<Item[]> items_;
  alignas(64) std::atomic<std::size_t> put_{0};
  std::size_t taken_seen_ = 0;  // of the thread that puts in
  alignas(64) std::atomic<std::size_t> taken_{0};
};

}  // namespace otel_straggler::events
