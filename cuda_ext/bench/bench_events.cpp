// What timing by events costs our own code, on a driver that does nothing; see
// benchmarks/gpu_events.py. Args: the driver's path.
//
// Prints JSON. Times are processor time of the one thread that works, the best of several rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "otel_straggler/events/event_timer.hpp"

using namespace otel_straggler;
using namespace otel_straggler::events;

namespace {

constexpr std::uint64_t kRuns = 1'000;  // of a round: fewer than there are events for
constexpr int kRounds = 2'000;

double cpu_ns() { return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID)); }

bool current_stream(void*, int, Stream& stream) noexcept {
  stream = nullptr;
  return true;
}

struct Cost {
  double boundary_ns = 1e18;
  double reading_ns = 1e18;  // of a run, on the exporter's thread
};

// Runs inside a step, as a training loop has them.
Cost measure(EventTimer& timer, bool is_timed) {
  Cost cost;
  std::vector<Record> records(kRuns);
  std::vector<Record> out;
  std::uint64_t span = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double began = cpu_ns();
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      timer.begun(true, ++span, 1);
      timer.ended(true, span, kNoSpan, 0);
    }
    cost.boundary_ns = std::min(cost.boundary_ns, (cpu_ns() - began) / kRuns / 2);
    const std::int64_t now_ns = monotonic_ns();
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      records[run].span = span - kRuns + run + 1;
      records[run].start_ns = records[run].end_ns = now_ns;
    }
    out.clear();
    const double reads = cpu_ns();
    timer.add(records.data(), kRuns);
    timer.drain_ready(now_ns, out);
    cost.reading_ns = std::min(cost.reading_ns, (cpu_ns() - reads) / kRuns);
    const GpuState wanted = is_timed ? GpuState::kTimedByEvents : GpuState::kOff;
    const bool is_right = out.size() == kRuns && out[0].gpu.state == wanted;
    if (!is_right && round > 2) std::exit(2);
  }
  return cost;
}

}  // namespace

int main(int count, char** arguments) {
  const Driver driver = load_driver(count > 1 ? arguments[1] : "");
  if (!driver.reason.empty()) {
    std::fprintf(stderr, "%s\n", driver.reason.c_str());
    return 1;
  }
  Host host;
  host.current_stream = current_stream;
  EventTimer& timer = EventTimer::make(driver, host, EventSettings());
  if (!timer.start().empty()) return 1;
  const Cost on = measure(timer, true);
  timer.stop(0);
  const Cost off = measure(timer, false);
  const std::size_t thread_bytes = sizeof(ThreadRuns) + 2'048 * sizeof(Ended) + 1'024 * sizeof(Pair);
  std::printf("{\"boundary_ns\": %.2f, \"boundary_ns_off\": %.2f, \"reading_ns\": %.1f, "
              "\"thread_bytes\": %zu}\n",
              on.boundary_ns, off.boundary_ns, on.reading_ns, thread_bytes);
  return 0;
}
