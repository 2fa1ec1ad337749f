// Records events on the stream that is current, on the thread whose run begins or ends.
//
// Nothing here waits for the GPU, but the driver itself does where its queue is full, as it does
// for every launch. Cost: the driver's calls, three or four, and a few stores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "otel_straggler/events/host.hpp"
#include "otel_straggler/events/thread_runs.hpp"

namespace otel_straggler::events {

// A call that ended timing.
struct Failure {
  const char* function = nullptr;  // null: none
  Code code = kSuccess;
};

class Marker {
 public:
  // device: the one that is timed; -1: whichever is current.
  Marker(const Api& api, const Host& host, int device, Budget& budget)
      : api_(api), host_(host), device_(device), budget_(&budget) {}

  OpenRun begin(ThreadRuns& runs, std::uint64_t span, Failure& failure) noexcept {
    OpenRun run{span, nullptr, nullptr, Outcome::kPending};
    Lane* const lane = place(runs, run.stream, run.outcome, failure);
    if (lane != nullptr) run.pair = record_begin(*lane, run.stream, run.outcome, failure);
    return run;
  }

  // What it gives has a pair if both events were recorded.
  Ended end(ThreadRuns& runs, std::uint64_t span, Failure& failure) noexcept {
    OpenRun run;
    if (!runs.remove(span, run)) return {span, nullptr, nullptr, Outcome::kMoved};
    if (run.pair == nullptr) return {span, nullptr, nullptr, run.outcome};
    run.outcome = record_end(runs, run, failure);
    if (run.outcome == Outcome::kPending) return {span, run.pair, run.stream, run.outcome};
    run.pair->lane->put_back(run.pair);
    return {span, nullptr, nullptr, run.outcome};
  }

  // Sees to it that this thread has `count` pairs ahead, if it uses the GPU already.
  void prepare(ThreadRuns& runs, std::size_t count, Failure& failure) noexcept {
    Outcome outcome = Outcome::kPending;
    Lane* const lane = lane_here(runs, outcome, failure);
    while (lane != nullptr && lane->spare() < count && lane->has_room()) {
      Code code = kSuccess;
      Pair* const pair = lane->make(api_, *budget_, code);
      if (code != kSuccess) failure = {"cuEventCreate", code};
      if (pair == nullptr) return;
      lane->put_back(pair);
    }
  }

 private:
  // Others of the program go on while this thread may wait in the driver.
  class Outside {
   public:
    explicit Outside(const Host& host)
        : host_(&host),
          token_(host.release_lock == nullptr ? nullptr : host.release_lock(host.user)) {}
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;
    ~Outside() {
      if (host_->reacquire_lock != nullptr) host_->reacquire_lock(host_->user, token_);
    }

   private:
    const Host* host_;
    void* token_;
  };

  // Where this thread's work goes now. Null: nowhere where it is timed, see outcome.
  Lane* place(ThreadRuns& runs, Stream& stream, Outcome& outcome, Failure& failure) noexcept {
    Lane* const lane = lane_here(runs, outcome, failure);
    if (lane == nullptr) return nullptr;
    if (device_ >= 0 && lane->device() != device_) return outcome = Outcome::kElsewhere, nullptr;
    if (host_.current_stream == nullptr ||
        host_.current_stream(host_.user, lane->device(), stream)) {
      return lane;
    }
    outcome = Outcome::kNoStream;
    return nullptr;
  }

  Lane* lane_here(ThreadRuns& runs, Outcome& outcome, Failure& failure) noexcept {
    Context context = nullptr;
    const Code code = api_.get_current(&context);
    const bool is_used = code != kNotInitialized && code != kDeinitialized;
    if (is_used && code != kSuccess) {
      return refuse("cuCtxGetCurrent", code, outcome, failure), nullptr;
    }
    if (!is_used || context == nullptr) return outcome = Outcome::kNoContext, nullptr;
    Lane* const lane = runs.lane_of(context);
    return lane == nullptr ? add_lane(runs, context, outcome, failure) : lane;
  }

  Lane* add_lane(ThreadRuns& runs, Context context, Outcome& outcome, Failure& failure) noexcept {
    int device = 0;
    const Code code = api_.get_device(&device);
    if (code != kSuccess) return refuse("cuCtxGetDevice", code, outcome, failure), nullptr;
    Lane* lane = nullptr;
    try {
      lane = runs.add_lane(context, device);
    } catch (const std::exception&) {  // no memory
    }
    if (lane == nullptr) outcome = Outcome::kOverrun;
    return lane;
  }

  Pair* record_begin(Lane& lane, Stream stream, Outcome& outcome, Failure& failure) noexcept {
    const Outside outside(host_);
    if (is_captured(stream, outcome, failure)) return nullptr;
    Code code = kSuccess;
    Pair* pair = lane.acquire();
    if (pair == nullptr) pair = lane.make(api_, *budget_, code);
    if (pair == nullptr) {
      outcome = Outcome::kOverrun;
      if (code != kSuccess) refuse("cuEventCreate", code, outcome, failure);
      return nullptr;
    }
    code = api_.record(pair->begin, stream);
    if (code == kSuccess) return pair;
    lane.put_back(pair);
    refuse("cuEventRecord", code, outcome, failure);
    return nullptr;
  }

  // kPending if the second event was recorded too.
  Outcome record_end(ThreadRuns& runs, const OpenRun& run, Failure& failure) noexcept {
    Outcome outcome = Outcome::kPending;
    Stream stream = nullptr;
    Lane* const lane = place(runs, stream, outcome, failure);
    if (lane == nullptr) return outcome == Outcome::kNoContext ? Outcome::kMoved : outcome;
    if (lane != run.pair->lane || stream != run.stream) return Outcome::kMoved;
    const Outside outside(host_);
    if (is_captured(stream, outcome, failure)) return outcome;
    const Code code = api_.record(run.pair->end, stream);
    if (code != kSuccess) refuse("cuEventRecord", code, outcome, failure);
    return outcome;
  }

  // Asking disturbs no capture; recording an event would: of this stream it would be a part of the
  // graph, and on the legacy stream it would spoil another stream's.
  bool is_captured(Stream stream, Outcome& outcome, Failure& failure) noexcept {
    int status = kNotCapturing;
    const Code code = api_.is_capturing(stream, &status);
    if (code != kSuccess) {
      refuse("cuStreamIsCapturing", code, outcome, failure);
    } else if (status != kNotCapturing) {
      outcome = Outcome::kCapturing;
    }
    return outcome != Outcome::kPending;
  }

  static void refuse(const char* function, Code code, Outcome& outcome, Failure& failure) noexcept {
    const Meaning meaning = meaning_of(code);
    outcome = meaning == Meaning::kCapture ? Outcome::kCapturing : Outcome::kRefused;
    if (meaning == Meaning::kEnd) failure = {function, code};
  }

  const Api api_;
  const Host host_;
  const int device_;
  Budget* budget_;
};

}  // namespace otel_straggler::events
