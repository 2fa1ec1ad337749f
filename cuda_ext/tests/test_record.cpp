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
}
