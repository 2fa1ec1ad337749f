// Trace and span ids, exactly those of otel_straggler/otlp/ids.py: every rank computes the same
// trace id for a step, in either form of the package.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "blake2b.hpp"
#include "record.hpp"

namespace otel_straggler {

using TraceId = std::array<std::uint8_t, 16>;
using SpanId = std::array<std::uint8_t, 8>;

// Length of a trace for spans without a step.
inline constexpr std::int64_t kWindowNs = 30'000'000'000;

// The sender, as far as ids depend on it.
struct Identity {
  std::string run_id;
  std::int64_t attempt = 0;
  std::string group;
  std::int64_t rank = 0;
};

inline TraceId hash_of(const std::string& text) {
  TraceId id{};
  Blake2b::hash(text, "", id.data(), id.size());
  return id;
}

inline TraceId step_trace_id(const Identity& who, std::int64_t step) {
  return hash_of(who.run_id + '|' + std::to_string(who.attempt) + '|' + who.group + '|' +
                 std::to_string(step));
}

// Which trace a run without a step belongs to; rounds down, also before 1970.
inline std::int64_t window_of(std::int64_t unix_ns) {
  const std::int64_t rest = unix_ns % kWindowNs;
  return unix_ns / kWindowNs - (rest < 0 ? 1 : 0);
}

inline TraceId window_trace_id(const Identity& who, std::int64_t window) {
  return hash_of(who.run_id + '|' + std::to_string(who.attempt) + '|' + who.group + "|rank " +
                 std::to_string(who.rank) + '|' + std::to_string(window) + " windows");
}

inline SpanId root_span_id(const TraceId& trace) {
  SpanId id{};
  const std::string_view text(reinterpret_cast<const char*>(trace.data()), trace.size());
  Blake2b::hash(text, "root", id.data(), id.size());
  return id;
}

// Whether the trace is among one in `one_in` (>= 1); every rank decides alike.
inline bool is_sampled(const TraceId& trace, std::uint64_t one_in) {
  std::uint64_t number = 0;
  for (std::size_t i = 8; i < trace.size(); ++i) number = number << 8 | trace[i];
  return number % one_in == 0;
}

// splitmix64 over a counter. Never 0, which OTLP reserves for "none".
inline std::uint64_t span_id(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t z = seed + number * 0x9E3779B97F4A7C15U;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  return z == 0 ? 1 : z;
}

// The traces of a rank, the newest remembered: runs of a step come one after the other.
class Traces {
 public:
  explicit Traces(Identity who) : who_(std::move(who)) {}

  // Of a run that began at `unix_ns`. The reference holds until the next call.
  const TraceId& of(std::int64_t step, std::int64_t unix_ns) {
    const bool has_step = step != kNoStep;
    const std::int64_t number = has_step ? step : window_of(unix_ns);
    Known& known = known_[static_cast<std::uint64_t>(number) % kKnown + (has_step ? 0 : kKnown)];
    if (!known.is_set || known.number != number) {
      known.id = has_step ? step_trace_id(who_, number) : window_trace_id(who_, number);
      known.number = number;
      known.is_set = true;
    }
    return known.id;
  }

 private:
  static constexpr std::size_t kKnown = 128;
  struct Known {
    TraceId id{};
    std::int64_t number = 0;
    bool is_set = false;
  };

  Identity who_;
  std::array<Known, 2 * kKnown> known_{};
};

}  // namespace otel_straggler
