// One thread's turn at something, where a lock would be held while a library is called that has
// locks of its own.
#pragma once

#include <atomic>

namespace otel_straggler {

struct Turn {
  explicit Turn(std::atomic<bool>& taken)
      : is_ours(!taken.exchange(true, std::memory_order_acquire)), flag(&taken) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (is_ours) flag->store(false, std::memory_order_release);
  }

  const bool is_ours;
  std::atomic<bool>* const flag;
};

}  // namespace otel_straggler
