// What timing kernels costs our own code, on the fake libcupti; see benchmarks/kernels.py.
//
// Prints JSON. Times are processor time of the one thread that works, the best of several rounds.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "../fake/fake_cupti.hpp"
#include "otel_straggler/gpu_boundary.hpp"
#include "otel_straggler/cupti/collector.hpp"

using namespace otel_straggler;
using namespace otel_straggler::cupti;

namespace {

constexpr std::uint32_t kSections = 8;
constexpr std::size_t kKernels = 300;
constexpr int kRounds = 7;
constexpr unsigned kLoseEvery = 50;  // marks: so often that parked kernels never fit

double cpu_ns() { return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID)); }

template <typename Work>
double best_ns(Work work) {
  double best = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    const double before = cpu_ns();
    work();
    best = std::min(best, cpu_ns() - before);
  }
  return best;
}

// As long as those of real kernels: 30 to 900 letters.
std::vector<std::string> names(std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::string> made;
  for (std::size_t at = 0; at < count; ++at) {
    made.push_back("_ZN2at6native" + std::to_string(at) + std::string(20 + random() % 870, 'k'));
  }
  return made;
}

Library fake_library() {
  LibraryRequest request;
  request.driver = "libcupti.so.13";
  return load_library(request);
}

// lose_every: of marks, each nth never comes back; 0: none is lost.
Collector& collector(bool by_launches, unsigned lose_every = 0) {
  static unsigned lost_every;
  static unsigned marks;
  static cupti::Result (*push)(std::uint32_t, std::uint64_t);
  fake_reset();
  CollectorSettings settings;
  settings.prefers_launches = by_launches;
  Library library = fake_library();
  push = library.api.push_external;
  lost_every = lose_every;
  if (lose_every > 0) {
    library.api.push_external = [](std::uint32_t kind, std::uint64_t id) {
      return ++marks % lost_every == 0 ? cupti::kUnknown : push(kind, id);
    };
  }
  Collector& made = Collector::make(library, settings);
  const std::string reason = made.start();
  if (!reason.empty()) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(1);
  }
  return made;
}

// Sections of 20 kernels, two streams that overlap; the runs are ended and taken.
class Training {
 public:
  Training(Collector& gpu, const std::vector<std::string>& kernel_names)
      : gpu_(&gpu), names_(&kernel_names), wall_ns_(static_cast<std::uint64_t>(wall_ns())) {}

  void launch(std::size_t kernels) {
    for (std::size_t at = 0; at < kernels; ++at) {
      if (at % 20 == 0) next_run();
      const std::string& name = (*names_)[next_++ % names_->size()];
      const std::uint64_t took_ns = 2'000 + random_() % 400;
      fake_launch_at(name.c_str(), wall_ns_, wall_ns_ + took_ns, 0, at % 4 == 0 ? 20 : 7);
      wall_ns_ += at % 3 == 0 ? took_ns / 2 : took_ns + 100;
    }
  }

  // What the exporter does: not the worker's cost.
  void drain() {
    std::vector<Record> out;
    gpu_->add(ended_.data(), ended_.size());
    ended_.clear();
    gpu_->drain_ready(monotonic_ns(), out);
  }

 private:
  void next_run() {
    Record run{};
    run.span = ++span_;
    run.start_ns = run.end_ns = monotonic_ns();
    ended_.push_back(run);
    gpu_->boundary(true, span_, static_cast<std::uint32_t>(span_ % kSections + 1));
  }

  Collector* gpu_;
  const std::vector<std::string>* names_;
  std::uint64_t wall_ns_;
  std::uint64_t span_ = 0;
  std::size_t next_ = 0;
  std::mt19937_64 random_{2};
  std::vector<Record> ended_;
};

// Reading, attributing, counting and zeroing, from the buffer that is full to the numbers.
double record_ns(bool by_launches, const std::vector<std::string>& kernel_names) {
  constexpr std::size_t kAtOnce = 50'000;  // a busy second
  Collector& gpu = collector(by_launches);
  Training training(gpu, kernel_names);
  double best = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    training.launch(kAtOnce);
    cupti::Result (*flush)(std::uint32_t) = fake_library().api.flush_all;
    flush(0);
    const double before = cpu_ns();
    gpu.round(0);
    best = std::min(best, cpu_ns() - before);
    training.drain();
  }
  if (gpu.state().counts.events != kAtOnce * kRounds) std::exit(2);
  gpu.stop(monotonic_ns());
  return best / static_cast<double>(kAtOnce);
}

// The walk by itself, which with a real libcupti is CUPTI's.
double walk_ns() {
  struct Nothing {
    std::uint64_t seen = 0;
    void observe(const MarkEvent&) { ++seen; }
    void observe(const GpuEvent& event) { seen += event.correlation; }
  } sink;
  fake_reset();
  static std::vector<std::uint8_t> buffer(std::size_t{1} << 20);
  static std::size_t used = 0;
  Library library = fake_library();
  library.api.register_callbacks(
      [](std::uint8_t** bytes, std::size_t* size, std::size_t* max_records) {
        *bytes = buffer.data();
        *size = buffer.size();
        *max_records = 0;
      },
      [](void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t valid) { used = valid; });
  library.api.enable(kConcurrentKernel);
  constexpr std::size_t kRecords = 4'000;
  for (std::size_t at = 0; at < kRecords; ++at) fake_launch("gemm", 10, 0, 7);
  library.api.flush_all(0);
  const double took = best_ns([&] {
    for (int at = 0; at < 10; ++at) {
      walk(library.api.get_next_record, buffer.data(), used, sink);
    }
  });
  return took / 10 / kRecords;
}

// Processor time of the worker while 50,000 kernels a second are launched: ten polls, two flushes.
// Time passes as specified, so that kernels whose mark was lost are waited for as they would be.
double percent_of_core(bool by_launches, const std::vector<std::string>& kernel_names,
                       unsigned lose_every = 0) {
  constexpr int kSettles = 3;  // seconds until the queue of those kernels is as full as it gets
  Collector& gpu = collector(by_launches, lose_every);
  Training training(gpu, kernel_names);
  double best = 1e18;
  std::int64_t now_ns = monotonic_ns();
  for (int second = 0; second < kSettles + kRounds; ++second) {
    double took = 0;
    for (int poll = 0; poll < 10; ++poll) {
      training.launch(5'000);
      now_ns += kSecondNs / 10;
      const double before = cpu_ns();
      gpu.round(now_ns);
      took += cpu_ns() - before;
    }
    training.drain();
    if (second >= kSettles) best = std::min(best, took);
  }
  const CollectorState state = gpu.state();
  if ((state.counts.lost > 0) != (lose_every > 0)) std::exit(7);
  gpu.stop(monotonic_ns());
  return best / 1e9 * 100;
}

int no_version(int*) { return 0; }

// Own code of one boundary, calls of CUPTI and the driver replaced by ones that do nothing.
double boundary_ns(bool by_launches, bool is_ambient) {
  constexpr std::uint64_t kCalls = 10'000'000;
  fake_reset();
  Library library = fake_library();
  library.api.push_external = [](std::uint32_t, std::uint64_t) { return kSuccess; };
  library.api.pop_external = [](std::uint32_t, std::uint64_t*) { return kSuccess; };
  library.get_driver_version = no_version;
  CollectorSettings settings;
  settings.prefers_launches = by_launches;
  Collector& gpu = Collector::make(library, settings);
  if (!gpu.start().empty()) std::exit(3);
  const double took = best_ns([&] {
    for (std::uint64_t span = 1; span <= kCalls / 2; ++span) {
      gpu.boundary(is_ambient, span, 3);
      gpu.boundary(is_ambient, kNoSpan, 0);
    }
  });
  gpu.stop(monotonic_ns());
  return took / static_cast<double>(kCalls);
}

// The same, asked of the recorder first: what a section's begin or end costs more.
double recorded_ns(bool by_launches) {
  constexpr std::uint64_t kCalls = 5'000'000;
  Block block;
  if (block.open() != 0) std::exit(5);
  Recorder recorder(block);
  recorder.enable(0, {}, 1);
  const auto stack = recorder.enter_thread(1);
  recorder.begin_step(*stack, 1, 1, 0, {}, 1);
  recorder.begin(*stack, 3, 1, Work{}, 2);
  fake_reset();
  Library library = fake_library();
  library.api.push_external = [](std::uint32_t, std::uint64_t) { return kSuccess; };
  library.api.pop_external = [](std::uint32_t, std::uint64_t*) { return kSuccess; };
  library.get_driver_version = no_version;
  CollectorSettings settings;
  settings.prefers_launches = by_launches;
  Collector& gpu = Collector::make(library, settings);
  if (!gpu.start().empty()) std::exit(6);
  const double took = best_ns([&] {
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      const Boundary now = boundary_of(recorder, *stack, true);
      gpu.boundary(now.is_ambient, now.span, now.section);
    }
  });
  gpu.stop(monotonic_ns());
  return took / static_cast<double>(kCalls);
}

// Our part of a launch, where CUPTI notifies us of each.
double launch_ns() {
  constexpr std::uint32_t kCalls = 10'000'000;
  static OnCall on_call = nullptr;
  static void* user = nullptr;
  fake_reset();
  Library library = fake_library();
  library.api.subscribe = [](Subscriber*, OnCall call, void* given) {
    on_call = call;
    user = given;
    return kSuccess;
  };
  CollectorSettings settings;
  settings.prefers_launches = true;
  Collector& gpu = Collector::make(library, settings);
  if (!gpu.start().empty()) std::exit(4);
  gpu.boundary(true, 1, 1);
  CallbackData data{};
  const double took = best_ns([&] {
    for (data.correlation = 1; data.correlation <= kCalls; ++data.correlation) {
      on_call(user, kDriverDomain, 307, &data);
    }
  });
  gpu.stop(monotonic_ns());
  return took / kCalls;
}

long resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1'024;
}

}  // namespace

int main() {
  const std::vector<std::string> few = names(kKernels);
  const std::vector<std::string> many = names(10'000);
  const double record_marks = record_ns(false, few);
  const double record_launches = record_ns(true, few);
  const double record_many = record_ns(true, many);
  const double percent_marks = percent_of_core(false, few);
  const double percent_launches = percent_of_core(true, few);
  const double percent_lost = percent_of_core(false, few, kLoseEvery);
  const long before = resident_bytes();
  Collector& gpu = collector(true);
  Training training(gpu, many);
  for (int times = 0; times < 10; ++times) {
    training.launch(100'000);
    gpu.flush();
    training.drain();
  }
  const CollectorState state = gpu.state();
  const long grown = resident_bytes() - before;
  gpu.stop(monotonic_ns());
  std::printf(
      "{\"at_once_ns_marks\": %.2f, \"at_once_ns_launches\": %.2f, "
      "\"at_once_ns_10000_names\": %.2f, "
      "\"walk_ns\": %.2f, \"boundary_ns_marks\": %.2f, \"boundary_ns_launches\": %.2f, "
      "\"boundary_ns_other_thread\": %.2f, \"recorded_ns_marks\": %.2f, "
      "\"recorded_ns_launches\": %.2f, \"launch_ns\": %.2f, \"percent_of_core_marks\": %.4f, "
      "\"percent_of_core_launches\": %.4f, \"percent_of_core_lost_marks\": %.4f, \"cells\": %zu, \"cell_bytes\": %zu, "
      "\"kernel_names\": %zu, \"grown_bytes\": %ld, \"kernels\": %llu}\n",
      record_marks, record_launches, record_many, walk_ns(), boundary_ns(false, true),
      boundary_ns(true, true), boundary_ns(true, false), recorded_ns(false), recorded_ns(true),
      launch_ns(), percent_marks,
      percent_launches, percent_lost, state.cells, state.cell_bytes, state.kernel_names,
      grown, static_cast<unsigned long long>(state.counts.events));
  return 0;
}
