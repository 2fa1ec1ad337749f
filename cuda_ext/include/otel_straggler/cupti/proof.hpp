// Whether the way in use attributes kernels at all: a CUPTI that allows every call may still give no
// marks, as a call enabled without its kind did on a real GPU. Reads no clock.
#pragma once

#include <cstdint>

#include "otel_straggler/cupti/invalid_watch.hpp"
#include "otel_straggler/cupti/pipeline.hpp"

namespace otel_straggler::cupti {

enum class ProofState : std::uint8_t {
  kOpen = 0,    // no kernel of a section has come back yet
  kProven = 1,  // one has, between the marks of its section
  kFailed = 2,  // kernels come back, and cannot be attributed
};

class Proof {
 public:
  // Tracing has begun; counts: so far.
  void begin(const PipelineCounts& counts) {
    before_ = counts;
    first_ns_ = 0;
    lost_ = InvalidWatch();
    state_ = ProofState::kOpen;
  }

  // After each flush.
  void record(const PipelineCounts& counts, std::int64_t now_ns) {
    const std::uint64_t kernels = counts.events - before_.events;
    if (counts.attributed > before_.attributed) state_ = ProofState::kProven;
    if (state_ == ProofState::kOpen && kernels > 0) {
      if (first_ns_ == 0) first_ns_ = now_ns;
      const bool is_told_apart = counts.outside > before_.outside;  // between marks of no section
      if (now_ns - first_ns_ >= kPatienceNs && !is_told_apart) state_ = ProofState::kFailed;
    }
    lost_.record(kernels, counts.lost - before_.lost);
    if (lost_.is_too_often()) state_ = ProofState::kFailed;
  }

  ProofState state() const { return state_; }

 private:
  static constexpr std::int64_t kPatienceNs = 1'000'000'000;

  PipelineCounts before_;
  InvalidWatch lost_;
  std::int64_t first_ns_ = 0;
  ProofState state_ = ProofState::kOpen;
};

}  // namespace otel_straggler::cupti
