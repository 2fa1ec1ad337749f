// Launching, sections, the worker and those who ask, all at once: for the sanitizers.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "faked.hpp"

using namespace faked;

namespace {

// 3,000 runs of one thread, with 5 kernels each.
void train(Collector& gpu, bool is_ambient, std::uint64_t first_span, std::uint32_t section) {
  for (std::uint64_t span = first_span; span < first_span + 3'000; ++span) {
    Record run{};
    run.span = span;
    run.section = section;
    run.start_ns = monotonic_ns();
    gpu.boundary(is_ambient, span, section);
    for (int at = 0; at < 5; ++at) fake_launch("gemm", 10, 0, section);
    gpu.boundary(is_ambient, kNoSpan, 0);
    run.end_ns = monotonic_ns();
    gpu.add(&run, 1);
  }
}

}  // namespace

TEST_CASE("four threads with 3,000 sections each, alongside worker and exporter: all is counted") {
  for (const auto& [by_launches, buffer_bytes] :
       {std::pair{true, 1U << 20}, std::pair{true, 8'192U}, std::pair{false, 1U << 20}}) {
    CAPTURE(by_launches);
    CAPTURE(buffer_bytes);
    const Fresh fresh;
    CollectorSettings settings;
    settings.buffer_bytes = buffer_bytes;
    settings.poll_ns = 1'000'000;
    settings.flush_ns = 1'000'000;
    Process process(by_launches, settings);
    fake_set("per_thread", 1);
    fake_set("shuffle", 5);
    process.gpu.start_thread();
    std::atomic<bool> is_done{false};
    std::vector<Record> records;
    std::uint64_t kernels = 0;
    const auto ask = [&] {
      process.gpu.drain_ready(monotonic_ns(), records);
      for (const KernelSummary& kernel : process.gpu.drain_kernels()) kernels += kernel.cell.count;
      static_cast<void>(process.gpu.state());
    };
    std::thread exporter([&] {
      while (!is_done) {
        ask();
        std::this_thread::yield();
      }
    });
    std::vector<std::thread> trainers;
    for (std::uint32_t at = 0; at < 4; ++at) {
      trainers.emplace_back([&, at] {
        train(process.gpu, at == 0, 10'000 * (at + 1) + 1, at + 1);
      });
    }
    for (std::thread& trainer : trainers) trainer.join();
    is_done = true;
    exporter.join();
    process.gpu.stop_thread();
    for (int flushes = 0; flushes < 3; ++flushes) process.gpu.flush();
    process.gpu.drain_all(true, records);
    ask();
    CHECK(records.size() == 12'000);
    const std::uint64_t dropped = process.gpu.state().counts.dropped;
    CHECK(kernels + dropped == 60'000);
    if (!by_launches) continue;  // marks know one thread's sections only
    std::uint64_t timed = 0;
    for (const Record& record : records) {
      if (record.gpu.state != GpuState::kTimed) continue;
      ++timed;
      REQUIRE(record.gpu.kernel_count == 5);  // whole or missing, nothing in between
    }
    if (dropped == 0) CHECK(timed == 12'000);
  }
}

TEST_CASE("stopping and starting again while others launch") {
  const Fresh fresh;
  Process process(true);
  process.gpu.start_thread();
  std::atomic<bool> is_done{false};
  std::thread trainer([&] {
    for (std::uint64_t span = 1; !is_done; ++span) {
      process.gpu.boundary(true, span, 1);
      fake_launch("gemm", 10, 0, 7);
      process.gpu.boundary(true, kNoSpan, 0);
    }
  });
  for (int times = 0; times < 50; ++times) {
    process.gpu.stop(monotonic_ns());
    CHECK(process.gpu.start() == "");
  }
  is_done = true;
  trainer.join();
  process.gpu.stop_thread();
  CHECK(process.gpu.state().garbage_buffers == 0);
}
