// The clocks: CLOCK_MONOTONIC for lengths and waiting, Unix time for stamps.
#pragma once

#include <cstdint>
#include <ctime>

namespace otel_straggler {

inline constexpr std::int64_t kSecondNs = 1'000'000'000;

inline std::int64_t clock_ns(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kSecondNs + now.tv_nsec;
}

inline std::int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline std::int64_t wall_ns() { return clock_ns(CLOCK_REALTIME); }

}  // namespace otel_straggler
