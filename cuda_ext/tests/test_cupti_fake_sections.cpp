#include <doctest/doctest.h>

#include <thread>

#include "faked.hpp"

using namespace faked;

TEST_CASE("kernels count in the section that launched them, in both ways") {
  for (const bool prefers_launches : {false, true}) {
    CAPTURE(prefers_launches);
    const Fresh fresh;
    Process process(prefers_launches);
    CHECK(process.gpu.way() == (prefers_launches ? Way::kLaunches : Way::kMarks));
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
    if (prefers_launches) CHECK(records[1].gpu.kernel_time_ns == 4'000);
    const auto kernels = process.gpu.take_kernels();
    REQUIRE(find(kernels, "gemm", 1) != nullptr);
    CHECK(find(kernels, "gemm", 1)->cell.count == 3);
    CHECK(find(kernels, "gemm", 2)->cell.sum_ns == 4'000);
    CHECK(find(kernels, "ncclDevKernel_AllReduce", 1)->kernel_class == KernelClass::kNccl);
  }
}
