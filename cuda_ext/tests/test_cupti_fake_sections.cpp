// Whose kernels are whose, from the launch to the numbers of a run, in both ways.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "faked.hpp"

using namespace faked;

namespace {

std::uint64_t count_in(const std::vector<KernelSummary>& kernels, std::uint32_t section) {
  std::uint64_t count = 0;
  for (const KernelSummary& kernel : kernels) {
    if (kernel.cell.section == section) count += kernel.cell.count;
  }
  return count;
}

// Runs 1 to `runs`, one after the other, with so many kernels as their section's number.
void run_sections(Process& process, std::uint64_t runs) {
  for (std::uint64_t span = 1; span <= runs; ++span) {
    const auto section = static_cast<std::uint32_t>(span % 4 + 1);
    process.begin(span, section);
    for (std::uint32_t at = 0; at < section; ++at) fake_launch("gemm", 1'000, 0, 7);
    process.end();
    process.gpu.round(monotonic_ns());
  }
}

// After all that was launched has ended and come back.
std::vector<Record> all_of(Process& process) {
  process.gpu.flush();
  process.gpu.flush();
  std::vector<Record> records;
  process.gpu.drain_all(true, records);
  return records;
}

void check_sections(Process& process, std::uint64_t runs) {
  const std::vector<Record> records = all_of(process);
  REQUIRE(records.size() == runs);
  for (const Record& record : records) {
    CAPTURE(record.span);
    REQUIRE(record.gpu.state == GpuState::kTimed);
    REQUIRE(record.gpu.kernel_count == record.span % 4 + 1);
    REQUIRE(record.gpu.kernel_time_ns == static_cast<std::int64_t>(record.span % 4 + 1) * 1'000);
    REQUIRE(record.gpu.busy_time_ns == record.gpu.kernel_time_ns);
  }
  CHECK(process.gpu.state().counts.lost == 0);
  CHECK(process.gpu.state().counts.outside == 0);
}

}  // namespace

TEST_CASE("kernels count in the section that launched them") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Process process(by_launches);
    CHECK(process.gpu.way() == (by_launches ? Way::kLaunches : Way::kMarks));
    process.begin(11, 1);
    for (int at = 0; at < 3; ++at) fake_launch("gemm", 1'000, 0, 7);
    fake_launch("ncclDevKernel_AllReduce", 500, 0, 20);
    process.end();
    process.gpu.round(monotonic_ns());
    process.begin(12, 2);
    fake_launch("gemm", 4'000, 0, 7);
    process.end();
    process.gpu.flush();
    process.gpu.flush();
    const std::vector<Record> records = process.ready(kLong);
    REQUIRE(records.size() == 2);
    CHECK(records[0].span == 11);
    CHECK(records[0].gpu.state == GpuState::kTimed);
    CHECK(records[0].gpu.kernel_count == 4);
    CHECK(records[0].gpu.kernel_time_ns == 3'500);
    CHECK(records[0].gpu.nccl_time_ns == 500);
    CHECK(records[0].gpu.busy_time_ns == 3'500);
    CHECK(records[1].gpu.state == GpuState::kTimed);
    const auto kernels = process.gpu.drain_kernels();
    REQUIRE(find(kernels, "gemm", 1) != nullptr);
    CHECK(find(kernels, "gemm", 1)->cell.count == 3);
    CHECK(find(kernels, "gemm", 2)->cell.sum_ns == 4'000);
    CHECK(find(kernels, "ncclDevKernel_AllReduce", 1)->kernel_class == KernelClass::kNccl);
  }
}

TEST_CASE("backward kernels are launched by another thread and count in backward") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Process process(by_launches);
    process.begin(1, 9);
    std::thread autograd([] {
      for (int at = 0; at < 20; ++at) fake_launch("gemm_grad", 1'000, 0, 7);
    });
    autograd.join();
    process.end();
    const std::vector<Record> records = all_of(process);
    REQUIRE(records.size() == 1);
    CHECK(records[0].gpu.kernel_count == 20);
    CHECK(count_in(process.gpu.drain_kernels(), 9) == 20);
  }
}

TEST_CASE("a thread with sections of its own keeps its kernels; marks report that they cannot") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Process process(by_launches);
    process.begin(1, 9);
    fake_launch("gemm", 1'000, 0, 7);
    std::thread prefetch([&] {
      process.gpu.boundary(false, 2, 5);
      fake_launch("preprocess", 1'000, 0, 8);
      process.gpu.boundary(false, kNoSpan, 0);
      fake_launch("gemm", 1'000, 0, 7);
    });
    prefetch.join();
    process.end();
    static_cast<void>(all_of(process));
    const auto kernels = process.gpu.drain_kernels();
    CHECK(count_in(kernels, 9) == (by_launches ? 2 : 3));
    CHECK(count_in(kernels, 5) == (by_launches ? 1 : 0));
    CHECK(process.gpu.state().boundaries_elsewhere == (by_launches ? 0 : 2));
  }
}

TEST_CASE("records that come in any order, late, in buffers by thread, change nothing") {
  for (const bool by_launches : {false, true}) {
    for (const char* trouble : {"shuffle", "late", "per_thread"}) {
      CAPTURE(by_launches);
      CAPTURE(trouble);
      const Fresh fresh;
      CollectorSettings settings;
      settings.buffer_bytes = 4'096;
      Process process(by_launches, settings);
      fake_set(trouble, 37);
      run_sections(process, 300);
      for (int flushes = 0; flushes < 40; ++flushes) process.gpu.flush();
      check_sections(process, 300);
    }
  }
}

TEST_CASE("correlation ids that start again at 0 change nothing") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    fake_set("correlation", 0xFFFF'FFFFU - 200);
    Process process(by_launches);
    run_sections(process, 300);
    check_sections(process, 300);
  }
}

TEST_CASE("records of every size, from CUDA 11.8 to 13.5, are read") {
  for (const std::uint64_t version : {18, 22, 24, 26, 28, 130'001, 130'101, 130'301, 130'500}) {
    CAPTURE(version);
    const Fresh fresh;
    fake_set("version", version);
    Process process(false);
    run_sections(process, 40);
    check_sections(process, 40);
  }
}

TEST_CASE("several devices and streams: busy time is that of the busiest device") {
  const Fresh fresh;
  Process process(true);
  process.begin(1, 1);
  const auto base = static_cast<std::uint64_t>(wall_ns());
  fake_launch_at("gemm", base, base + 100, 0, 7);
  fake_launch_at("copy", base + 50, base + 150, 0, 8);
  fake_launch_at("gemm", base, base + 120, 1, 7);
  process.end();
  process.gpu.flush();
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 1);
  CHECK(records[0].gpu.kernel_count == 3);
  CHECK(records[0].gpu.kernel_time_ns == 320);
  CHECK(records[0].gpu.busy_time_ns == 150);
}

TEST_CASE("all kernels of a graph count in the section that launched the graph") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Process process(by_launches);
    const char* const nodes[] = {"gemm", "softmax", "gemm"};
    process.begin(1, 1);
    fake_launch_graph(nodes, 3, 1'000, 0, 7);
    process.end();
    process.begin(2, 2);
    fake_launch_graph(nodes, 3, 1'000, 0, 7);
    process.end();
    CHECK(process.ready().empty());  // how many kernels a graph has is unknown
    process.gpu.flush();
    const std::vector<Record> records = process.ready();
    REQUIRE(records.size() == 2);
    CHECK(records[0].gpu.state == GpuState::kTimed);
    CHECK(records[0].gpu.kernel_count == 3);
    CHECK(count_in(process.gpu.drain_kernels(), 2) == 3);
  }
}

TEST_CASE("before a long pause every run has its numbers, once nothing is left in CUPTI") {
  const Fresh fresh;
  Process process(false);
  for (std::uint64_t span = 1; span <= 5; ++span) {  // all since the worker looked last
    process.begin(span, 1);
    fake_launch("gemm", 1'000, 0, 7);
    process.end();
  }
  process.gpu.flush();
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 5);
  for (const Record& record : records) CHECK(record.gpu.kernel_count == 1);
}

TEST_CASE("a run whose kernels may still be in CUPTI waits for something launched after it") {
  const Fresh fresh;
  Process process(false);
  process.begin(1, 1);
  fake_launch("gemm", 1'000, 0, 7);
  process.end();
  fake_set("hold", 1);
  fake_launch("gemm", 1'000, 0, 7);  // into the same buffer, which it holds
  process.gpu.flush();
  process.gpu.flush();
  CHECK(process.ready().empty());
  fake_set("hold", 0);
  process.gpu.flush();
  REQUIRE(process.ready().size() == 1);
}

TEST_CASE("a run with a graph in it is done once nothing is left in CUPTI") {
  const Fresh fresh;
  Process process(true);
  const char* const names[] = {"gemm", "softmax"};
  for (std::uint64_t span = 1; span <= 2; ++span) {
    process.begin(span, 1);
    fake_launch_graph(names, 2, 100, 0, 7);
    process.end();
  }
  CHECK(process.ready().empty());
  process.gpu.flush();
  const std::vector<Record> records = process.ready();
  REQUIRE(records.size() == 2);
  CHECK(records[0].gpu.kernel_count == 2);
}

TEST_CASE("a graph of one kernel is not taken for a launch of one kernel") {
  const Fresh fresh;
  Process process(true);
  const char* const nodes[] = {"gemm"};
  process.begin(1, 1);
  fake_launch_graph(nodes, 1, 1'000, 0, 7);
  process.end();
  fake_set("hold", 1);
  fake_launch("gemm", 1'000, 0, 7);
  process.gpu.flush();
  CHECK(process.ready().empty());
}

TEST_CASE("graphs may be timed as a whole") {
  const Fresh fresh;
  CollectorSettings settings;
  settings.times_whole_graphs = true;
  Process process(false, settings);
  const char* const nodes[] = {"gemm", "softmax"};
  process.begin(1, 1);
  fake_launch_graph(nodes, 2, 1'000, 0, 7);
  process.end();
  const std::vector<Record> records = all_of(process);
  REQUIRE(records.size() == 1);
  CHECK(records[0].gpu.kernel_time_ns == 2'000);
  CHECK(find(process.gpu.drain_kernels(), "[cuda graph]", 1) != nullptr);
}

TEST_CASE("copies are timed where that is wanted, as a class of their own") {
  const Fresh fresh;
  CollectorSettings settings;
  settings.times_memory = true;
  Process process(false, settings);
  process.begin(1, 1);
  fake_memcpy(1'024, 700);
  process.end();
  static_cast<void>(all_of(process));
  const auto kernels = process.gpu.drain_kernels();
  REQUIRE(find(kernels, "[memcpy]", 1) != nullptr);
  CHECK(find(kernels, "[memcpy]", 1)->kernel_class == KernelClass::kMemory);
  CHECK(find(kernels, "[memcpy]", 1)->cell.sum_ns == 700);
}

TEST_CASE("names of any length, and none, are kernels too") {
  const Fresh fresh;
  Process process(false);
  const std::string lengthy(20'000, 'k');
  process.begin(1, 1);
  const char* const names[] = {lengthy.c_str(), lengthy.c_str() + 15'000, "", nullptr};
  for (const char* name : names) fake_launch(name, 10, 0, 7);
  process.end();
  const std::vector<Record> records = all_of(process);
  REQUIRE(records.size() == 1);
  CHECK(records[0].gpu.kernel_count == 4);
  CHECK(process.gpu.drain_kernels().size() == 4);
}

TEST_CASE("a place that holds another kernel's name by the next poll is read again") {
  const Fresh fresh;
  Process process(false);
  process.begin(1, 1);
  char place[16] = "softmax";
  fake_launch(place, 1'000, 0, 7);
  process.gpu.flush();
  std::strcpy(place, "layer_norm");
  fake_launch(place, 1'000, 0, 7);
  process.gpu.flush();
  process.end();
  const std::vector<KernelSummary> kernels = process.gpu.drain_kernels();
  for (const char* name : {"softmax", "layer_norm"}) {
    CAPTURE(name);
    const KernelSummary* found = find(kernels, name, 1);
    REQUIRE(found != nullptr);
    CHECK(found->cell.count == 1);
  }
}
