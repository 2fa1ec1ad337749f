// The recorder's own runs, through the ring, with the numbers of their kernels.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "faked.hpp"
#include "otel_straggler/gpu_boundary.hpp"

using namespace faked;

namespace {

// A training process as the bindings make it: every boundary is reported to the collector.
struct Trainer {
  Process process;
  Block block;
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<ThreadStack> stack;

  explicit Trainer(bool by_launches) : process(by_launches) {
    REQUIRE(block.open() == 0);
    recorder = std::make_unique<Recorder>(block);
    recorder->enable(0, {}, monotonic_ns());
    stack = recorder->enter_thread(1);
  }

  void notify(ThreadStack& thread, bool is_main) {
    const Boundary now = boundary_of(*recorder, thread, is_main);
    process.gpu.boundary(now.is_ambient, now.span, now.section);
  }
  void begin(ThreadStack& thread, std::uint32_t section, bool is_main = true) {
    recorder->begin(thread, section, monotonic_ns(), Work{}, recorder->next_span(thread));
    notify(thread, is_main);
  }
  void end(ThreadStack& thread, std::uint32_t section, bool is_main = true) {
    REQUIRE(recorder->end_at_once(thread, section, monotonic_ns()));
    notify(thread, is_main);
  }
  void step(std::int64_t number) {
    if (auto ended = recorder->end_step(*stack, monotonic_ns(), 0)) recorder->keep(*ended);
    recorder->begin_step(*stack, number, recorder->next_span(*stack), 0, {}, monotonic_ns());
    notify(*stack, true);
  }

  // Records by section; the exporter's way.
  std::map<std::uint32_t, Record> finish() {
    if (auto ended = recorder->end_step(*stack, monotonic_ns(), 0)) recorder->keep(*ended);
    process.gpu.flush();
    process.gpu.flush();
    std::vector<Record> records(100);
    records.resize(recorder->drain(records.data(), records.size()));
    process.gpu.add(records.data(), records.size());
    records.clear();
    process.gpu.drain_all(true, records);
    std::map<std::uint32_t, Record> by_section;
    for (const Record& record : records) by_section[record.section] = record;
    return by_section;
  }
};

}  // namespace

TEST_CASE("a step has all its kernels, its sections theirs, also those of autograd's thread") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Trainer trainer(by_launches);
    trainer.step(1);
    fake_launch("zero_grad", 1, 0, 7);
    trainer.begin(*trainer.stack, 5);
    fake_launch("gemm", 10, 0, 7);
    trainer.begin(*trainer.stack, 6);
    fake_launch("softmax", 100, 0, 7);
    trainer.end(*trainer.stack, 6);
    fake_launch("gemm", 1'000, 0, 7);
    trainer.end(*trainer.stack, 5);
    trainer.begin(*trainer.stack, 7);
    std::thread([] { fake_launch("gemm_grad", 10'000, 0, 7); }).join();
    trainer.end(*trainer.stack, 7);
    auto records = trainer.finish();
    REQUIRE(records.size() == 4);
    CHECK(records[5].gpu.kernel_time_ns == 1'110);
    CHECK(records[6].gpu.kernel_time_ns == 100);
    CHECK(records[7].gpu.kernel_time_ns == 10'000);
    CHECK(records[kStepSection].gpu.kernel_time_ns == 11'111);
    CHECK(records[kStepSection].gpu.kernel_count == 5);
    CHECK(trainer.process.gpu.state().counts.outside == 0);
  }
}

TEST_CASE("a prefetching thread speaks for itself alone") {
  const Fresh fresh;
  Trainer trainer(true);
  trainer.step(1);
  trainer.begin(*trainer.stack, 5);
  std::thread([&] {
    auto own = trainer.recorder->enter_thread(2);
    trainer.begin(*own, 8, false);
    fake_launch("decode", 10, 0, 8);
    trainer.end(*own, 8, false);
    fake_launch("copy", 100, 0, 8);  // outside of its sections: the process's
  }).join();
  fake_launch("gemm", 1'000, 0, 7);
  trainer.end(*trainer.stack, 5);
  auto records = trainer.finish();
  CHECK(records[8].gpu.kernel_time_ns == 10);
  CHECK(records[5].gpu.kernel_time_ns == 1'100);
}

TEST_CASE("before the first step the main thread speaks for the process, at any depth") {
  const Fresh fresh;
  Trainer trainer(true);
  for (std::uint32_t section = 1; section <= 40; ++section) {
    trainer.begin(*trainer.stack, section);
    fake_launch("gemm", 1, 0, 7);
  }
  Record record;
  for (std::uint32_t section = 40; section >= 1; --section) {
    REQUIRE(trainer.recorder->end(*trainer.stack, section, monotonic_ns(), 0, record));
    trainer.recorder->keep(record);
    trainer.notify(*trainer.stack, true);
  }
  auto records = trainer.finish();
  for (std::uint32_t section = 1; section <= 40; ++section) {
    CHECK(records[section].gpu.kernel_count == 41 - section);
  }
  const Boundary elsewhere =
      boundary_of(*trainer.recorder, *trainer.recorder->enter_thread(3), false);
  CHECK_FALSE(elsewhere.is_ambient);
  CHECK(elsewhere.span == kNoSpan);
}
