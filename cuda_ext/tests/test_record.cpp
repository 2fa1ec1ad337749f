#include <doctest/doctest.h>

#include "otel_straggler/record.hpp"

using namespace otel_straggler;

TEST_CASE("a record that was not filled has no GPU time") {
  const Record record{};
  CHECK(record.gpu.state == GpuState::kOff);
  CHECK(record.gpu.kernel_count == 0);
}

TEST_CASE("what a reader in another process relies on stays where it is") {
  CHECK(offsetof(Record, step) == 24);
  CHECK(offsetof(Record, start_ns) == 32);
  CHECK(offsetof(Record, end_ns) == 40);
  CHECK(offsetof(Record, flags) == 84);
  CHECK(offsetof(GpuSlot, busy_time_ns) == 8);
  CHECK(offsetof(GpuSlot, kernel_count) == 24);
  CHECK(offsetof(GpuSlot, state) == 28);
  CHECK(static_cast<int>(GpuState::kTimed) == 2);
  CHECK(static_cast<int>(GpuState::kTimedByEvents) == 4);
  CHECK(static_cast<int>(GpuState::kWaited) == 5);
}

TEST_CASE("a run waits for no longer than it lasts, and no wait is none") {
  CHECK(waited_slot(5, 10, 20).state == GpuState::kWaited);
  CHECK(waited_ns_of(waited_slot(5, 10, 20)) == 5);
  CHECK(waited_ns_of(waited_slot(50, 10, 20)) == 10);
  for (const GpuSlot& none : {waited_slot(0, 10, 20), waited_slot(-1, 10, 20), waited_slot(5, 20, 20),
                              waited_slot(5, 20, 10)}) {
    CHECK(none.state == GpuState::kOff);
    CHECK(waited_ns_of(none) == 0);
  }
  CHECK(waited_ns_of(GpuSlot{1, 2, 3, 4, GpuState::kTimed}) == 0);
  CHECK(waited_ns_of(GpuSlot{0, 0, -3, 0, GpuState::kWaited}) == 0);
}
