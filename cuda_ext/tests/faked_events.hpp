// A timer by events on the fake CUDA driver, its reading done by hand.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../fake/fake_cuda_driver.hpp"
#include "otel_straggler/events/event_timer.hpp"

namespace faked_events {

using namespace otel_straggler;
using namespace otel_straggler::events;

inline constexpr const char* kDriver = "libfake_cuda.so.1";  // linked, so it is loaded
inline constexpr std::int64_t kLong = 3'000'000'000;         // longer than runs wait

// What torch knows: the current stream of this thread.
inline thread_local void* stream_now = nullptr;
inline thread_local bool knows_stream = true;

inline bool current_stream(void* /*user*/, int /*device*/, Stream& stream) noexcept {
  stream = static_cast<Stream>(stream_now);
  return knows_stream;
}

// A process whose first thread uses device 0.
struct Process {
  explicit Process(EventSettings settings = {}) {
    fake_cuda_reset();
    context = fake_cuda_context(0);
    fake_cuda_set_current(context);
    stream_now = fake_cuda_stream(context, 0);
    knows_stream = true;
    const Driver driver = load_driver(kDriver);
    REQUIRE(driver.reason == "");
    Host host;
    host.current_stream = current_stream;
    timer = &EventTimer::make(driver, host, settings);
    REQUIRE(timer->start() == "");
  }
  ~Process() {
    fake_cuda_set("full", 0);
    timer->stop(0);
    CHECK(fake_cuda_get("never") == 0);
    CHECK(fake_cuda_get("cuEventDestroy") == 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void begin(std::uint64_t span) {
    Record run{};
    run.span = span;
    run.start_ns = monotonic_ns();
    open.push_back(run);
    timer->begun(true, span, 1);
  }
  void end() {
    Record run = open.back();
    open.pop_back();
    run.end_ns = monotonic_ns();
    timer->ended(true, run.span, kNoSpan, 0);
    timer->add(&run, 1);
  }
  // A run with so much work on the current stream.
  void run(std::uint64_t span, std::uint64_t duration_ns) {
    begin(span);
    fake_cuda_launch(stream_now, duration_ns);
    end();
  }

  // What is ready when so much more time has passed.
  std::vector<Record> ready(std::int64_t later_ns = 0) {
    std::vector<Record> records;
    timer->drain_ready(monotonic_ns() + later_ns, records);
    return records;
  }
  // The next run out of it, which must be there.
  Record one(std::int64_t later_ns = 0) {
    const std::vector<Record> records = ready(later_ns);
    REQUIRE(records.size() == 1);
    return records[0];
  }
  std::uint64_t count(Outcome outcome) {
    return timer->state().runs.by_outcome[static_cast<std::size_t>(outcome)];
  }

  void* context = nullptr;
  EventTimer* timer = nullptr;
  std::vector<Record> open;
};

inline bool is_timed(const Record& record, std::int64_t busy_ns) {
  return record.gpu.state == GpuState::kTimedByEvents && record.gpu.busy_time_ns == busy_ns &&
         record.gpu.kernel_time_ns == -1 && record.gpu.nccl_time_ns == -1 &&
         record.gpu.kernel_count == 0;
}

inline bool is_missing(const Record& record) { return record.gpu.state == GpuState::kMissing; }
inline bool is_off(const Record& record) { return record.gpu.state == GpuState::kOff; }

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace faked_events
