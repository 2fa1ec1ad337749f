// What goes wrong with CUPTI, and what is said of it.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "faked.hpp"

using namespace faked;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a CUDA driver libcupti is not even looked for") {
  const Library library = load_library(LibraryRequest());
  CHECK(has(library.reason, "no CUDA driver is loaded in this process (libcuda.so.1)"));
  CHECK((library.api.get_version == nullptr));
}

TEST_CASE("the library that the process has loaded is the one that is used") {
  const Fresh fresh;
  LibraryRequest elsewhere = library_request();
  elsewhere.folder = "/nowhere";
  const Library library = load_library(elsewhere);
  CHECK(library.reason == "");
  CHECK(has(library.path, "libcupti.so.13"));
  CHECK(library.version == 130'000);
  CHECK_FALSE(library.is_untried);
}

TEST_CASE("a path that was given is used, and named when it is wrong") {
  LibraryRequest wrong = library_request();
  wrong.path = "/nowhere/libcupti.so";
  CHECK(has(load_library(wrong).reason, "OTEL_STRAGGLER_CUPTI names a library that cannot be"));
  wrong.path = "libdl.so.2";
  CHECK(has(load_library(wrong).reason, "libcupti has no cupti"));
  wrong.path = load_library(library_request()).path;
  CHECK(load_library(wrong).reason == "");
}

TEST_CASE("a version too old is refused, one newer than all tried is used and marked") {
  const Fresh fresh;
  fake_set("version", 17);
  CHECK(has(load_library(library_request()).reason, "interface version 17; expected at least 18"));
  fake_set("version", 140'000);
  CHECK(load_library(library_request()).reason == "");
  CHECK(load_library(library_request()).is_untried);
  fake_fail("cuptiGetVersion", 999);
  CHECK(has(load_library(library_request()).reason, "cuptiGetVersion gave 999"));
}

TEST_CASE("whatever CUPTI refuses is named with cause and remedy, and all is given back") {
  struct Refusal {
    const char* function;
    Result code;
    const char* words;
  };
  const Refusal refusals[] = {
      {"cuptiActivityRegisterCallbacks", 999, "compare nvidia-smi with"},
      {"cuptiActivityEnable", 15, "the CUDA driver is not initialised"},
      {"cuptiActivityEnable", 27, "MIG, vGPU"},
      {"cuptiActivityEnable", 33, "virtualised"},
      {"cuptiActivityEnable", 35, "NVreg_RestrictProfilingToAdminUsers=0"},
      {"cuptiActivityEnable", 40, "ask for vGPU profiling to be enabled"},
      {"cuptiActivityEnable", 41, "confidential computing"},
      {"cuptiActivityEnable", 43, "MIG"},
      {"cuptiActivityEnable", 42, "CMP"},
      {"cuptiActivityEnable", 14, "another client uses CUPTI's newer interface"},
      {"cuptiActivityEnable", 77, "unexpected"},
      {"cuptiSubscribe", 39, "another profiler holds CUPTI"},
      {"cuptiEnableCallback", 999, "no usable CUDA driver"},
  };
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.function);
    CAPTURE(refusal.code);
    const Fresh fresh;
    const std::string function = refusal.function;
    const bool by_launches = function == "cuptiSubscribe" || function == "cuptiEnableCallback";
    Collector& gpu = collector(by_launches);
    fake_fail(refusal.function, refusal.code);
    const std::string reason = gpu.start();
    CHECK(has(reason, function + " gave " + std::to_string(refusal.code)));
    CHECK(has(reason, refusal.words));
    CHECK_FALSE(gpu.is_tracing());
    CHECK(fake_get("kinds") == 0);
    CHECK(fake_get("subscribers") == 0);
    gpu.boundary(true, 1, 1);  // training goes on
    fake_launch("gemm", 10, 0, 7);
    fake_fail(refusal.function, 0);
    CHECK(gpu.start() == "");  // and so may timing, later
    gpu.stop(monotonic_ns());
    CHECK(fake_get("cuptiFinalize") == 0);
  }
}

TEST_CASE("another profiler that holds the one subscriber is named") {
  const Fresh fresh;
  fake_set("other_subscriber", 1);
  CHECK(has(collector(true).start(), "cuptiSubscribe gave 39: another profiler holds CUPTI"));
  Collector& by_marks = collector(false);
  CHECK(by_marks.start() == "");  // marks need no subscriber
  by_marks.stop(monotonic_ns());
}

TEST_CASE("kernels without timestamps are counted, not summed, and their runs are missing") {
  const Fresh fresh;
  Process process(true);
  std::uint64_t span = 0;
  for (const char* trouble : {"zero_every", "backward_every"}) {
    fake_set(trouble, 10);
    process.begin(++span, 1);
    for (int at = 0; at < 1'000; ++at) fake_launch("gemm", 100, 0, 7);
    process.end();
    process.gpu.flush();
    fake_set(trouble, 0);
    const std::vector<Record> records = process.ready();
    REQUIRE(records.size() == 1);
    CHECK(records[0].gpu.state == GpuState::kMissing);
    CHECK(process.gpu.drain_kernels().at(0).cell.count == 900);
  }
  CHECK(process.gpu.state().counts.invalid == 200);
  CHECK(process.gpu.state().is_invalid_too_often);
}

TEST_CASE("one invalid timestamp in a hundred is too often, one in two hundred is not") {
  for (const std::uint64_t every : {50, 200}) {
    const Fresh fresh;
    Process process(false);
    fake_set("zero_every", every);
    for (int at = 0; at < 2'000; ++at) fake_launch("gemm", 100, 0, 7);
    process.gpu.flush();
    CHECK(process.gpu.state().is_invalid_too_often == (every == 50));
  }
}

TEST_CASE("what CUPTI drops is counted, and the run is missing rather than too short") {
  const Fresh fresh;
  Process process(true);
  fake_set("drop_every", 10);
  process.begin(1, 1);
  for (int at = 0; at < 100; ++at) fake_launch("gemm", 100, 0, 7);
  process.end();
  process.gpu.flush();
  const std::vector<Record> records = process.ready(kLong);
  REQUIRE(records.size() == 1);
  CHECK(records[0].gpu.state == GpuState::kMissing);
  CHECK(process.gpu.state().counts.dropped == 10);
  fake_set("drop_every", 0);
  process.begin(2, 1);
  fake_launch("gemm", 100, 0, 7);
  process.end();
  process.gpu.flush();
  CHECK(process.ready().at(0).gpu.state == GpuState::kTimed);
}

TEST_CASE("when all buffers are out, new CUPTI gets none and old CUPTI one to waste") {
  for (const std::uint64_t version : {26, 28}) {
    CAPTURE(version);
    const Fresh fresh;
    fake_set("version", version);
    CollectorSettings settings;
    settings.buffer_bytes = 4'096;
    settings.max_buffers = 2;
    Process process(true, settings);
    fake_set("late", 5);
    process.begin(1, 1);
    for (int at = 0; at < 200; ++at) fake_launch("gemm", 100, 0, 7);
    process.end();
    process.gpu.flush();
    const CollectorState state = process.gpu.state();
    CHECK(state.declined_buffers > 0);
    CHECK((fake_get("declined") == 0) == (version < 27));
    CHECK(state.counts.events < 200);
    CHECK(state.counts.dropped > 0);
    CHECK(state.garbage_buffers == 0);
    const std::vector<Record> records = process.ready(kLong);
    REQUIRE(records.size() == 1);
    CHECK(records[0].gpu.state == GpuState::kMissing);
    for (int flushes = 0; flushes < 6; ++flushes) process.gpu.flush();
  }
}

TEST_CASE("a buffer that makes no sense is left and counted, and training goes on") {
  const Fresh fresh;
  Library library = load_library(library_request());
  library.api.get_next_record = [](std::uint8_t*, std::size_t, void**) { return kInvalidKind; };
  Collector& gpu = Collector::make(library, {});
  REQUIRE(gpu.start() == "");
  fake_launch("gemm", 100, 0, 7);
  gpu.flush();
  CHECK(gpu.state().garbage_buffers == 1);
  CHECK(gpu.state().counts.dropped == 1);
  gpu.stop(monotonic_ns());
}

TEST_CASE("kernels that still run hold their numbers back; at the end they are missing") {
  const Fresh fresh;
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    fake_reset();
    Process process(by_launches);
    fake_set("hold", 1);
    process.begin(1, 1);
    fake_launch("ncclDevKernel_AllReduce", 5'000'000'000, 0, 20);
    process.end();
    process.gpu.flush();
    process.gpu.flush();
    CHECK(process.ready().empty());
    const std::vector<Record> records = process.ready(kLong);
    REQUIRE(records.size() == 1);
    CHECK(records[0].gpu.state == GpuState::kMissing);
    fake_set("hold", 0);
    process.gpu.flush();
    CHECK(process.gpu.state().counts.late == 1);
  }
}

TEST_CASE("another client that takes the callbacks over is noticed, and gets over it") {
  for (const bool by_launches : {false, true}) {
    CAPTURE(by_launches);
    const Fresh fresh;
    Process process(by_launches);
    process.begin(1, 1);
    fake_launch("gemm", 100, 0, 7);
    fake_foreign_takeover();
    const std::uint64_t before = fake_foreign_bytes();
    for (int flushes = 1; flushes <= 3; ++flushes) {
      fake_launch("gemm", 100, 0, 7);
      process.gpu.boundary(true, 1, 1);
      process.gpu.flush();
      CHECK(process.gpu.state().silent_flushes >= static_cast<std::uint64_t>(flushes - 1));
    }
    CHECK(fake_foreign_bytes() > before);
    CHECK(process.gpu.state().silent_flushes >= 2);
    process.end();
    process.gpu.stop(monotonic_ns());
    if (by_launches) CHECK(process.ready(kLong).at(0).gpu.state == GpuState::kMissing);
    REQUIRE(process.gpu.start() == "");  // from scratch
    if (!by_launches) CHECK(process.ready().at(0).gpu.state == GpuState::kMissing);
    process.begin(2, 1);
    fake_launch("gemm", 100, 0, 7);
    process.end();
    process.gpu.round(monotonic_ns());
    process.begin(3, 1);
    fake_launch("gemm", 100, 0, 7);
    process.gpu.flush();
    process.gpu.flush();
    CHECK(process.ready().at(0).gpu.state == GpuState::kTimed);
    CHECK(process.gpu.state().silent_flushes == 0);
  }
}

TEST_CASE("a foreign buffer that is given to us is left alone") {
  const Fresh fresh;
  Process process(false);
  fake_launch("gemm", 100, 0, 7);
  process.gpu.flush();
  fake_foreign_takeover();
  fake_launch("gemm", 100, 0, 7);  // into a buffer of theirs
  process.gpu.stop(monotonic_ns());
  REQUIRE(process.gpu.start() == "");  // our callbacks again: what comes back is theirs
  process.gpu.flush();
  CHECK(process.gpu.state().garbage_buffers == 0);
  CHECK(process.gpu.state().foreign_buffers + fake_foreign_bytes() > 0);
}

TEST_CASE("a clock that another client has left behind is replaced at every start") {
  for (const bool by_launches : {false, true}) {
    const Fresh fresh;
    Process process(by_launches);
    for (int times = 0; times < 2; ++times) {
      process.gpu.stop(monotonic_ns());
      load_library(library_request()).api.register_clock(
          [] { return std::uint64_t{1'000}; });  // ticks
      REQUIRE(process.gpu.start() == "");
      process.begin(1, 1);
      fake_launch("gemm", 100, 0, 7);
      process.gpu.flush();
      CHECK(process.gpu.state().counts.early == 0);
      CHECK(process.gpu.drain_kernels().size() == 1);
    }
  }
}

TEST_CASE("stopping gives everything back to CUPTI and waits for buffers until the deadline only") {
  for (const bool by_launches : {false, true}) {
    const Fresh fresh;
    Process process(by_launches);
    fake_launch("gemm", 100, 0, 7);
    process.gpu.stop(monotonic_ns() + kSecondNs);
    CHECK(fake_get("kinds") == 0);
    CHECK(fake_get("subscribers") == 0);
    CHECK(process.gpu.state().buffers_out == 0);
    CHECK(fake_get("cuptiFinalize") == 0);
    const std::uint64_t marks = fake_get("cuptiActivityEnableDriverApi");
    process.gpu.boundary(true, 5, 1);
    CHECK(fake_get("cuptiActivityEnableDriverApi") == marks);
  }
}

TEST_CASE("a forked child is left alone") {
  const Fresh fresh;
  Process process(false);
  process.gpu.start_thread();
  const pid_t child = ::fork();
  if (child == 0) {
    process.gpu.boundary(true, 1, 1);
    process.gpu.stop(monotonic_ns());
    ::_exit(process.gpu.start().empty() ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  process.gpu.stop_thread();
}

TEST_CASE("a lost mark costs the runs until its kernels are back, and no run is given too few") {
  constexpr std::int64_t kGivenUp = 2'500'000'000;
  constexpr std::uint32_t kKernels = 100;
  const Fresh fresh;
  CollectorSettings settings;
  settings.buffer_bytes = 4'096;  // so that a run fills several, which come back without a flush
  Process process(false, settings);
  const auto run = [&](std::uint64_t span) {
    process.begin(span, 1);
    for (std::uint32_t at = 0; at < kKernels; ++at) fake_launch("gemm", 1'000, 0, 7);
    process.end();
  };
  const Api api = load_library(library_request()).api;
  const std::int64_t start_ns = monotonic_ns();
  process.gpu.round(start_ns);
  run(1);
  api.disable(kExternalCorrelation);
  run(2);  // both its marks are lost
  api.enable(kExternalCorrelation);
  run(3);
  process.gpu.round(start_ns);  // a look that began before what it finds was launched
  for (const std::uint64_t span : {4U, 5U, 6U, 7U}) run(span);
  process.gpu.flush(monotonic_ns() + kGivenUp);
  const std::vector<Record> records = process.ready(kGivenUp);
  REQUIRE(records.size() == 7);
  CHECK(process.gpu.state().marks_lost == 2);
  CHECK(process.gpu.state().counts.lost == kKernels);
  for (const Record& record : records) {
    CAPTURE(record.span);
    const bool is_timed = record.span > 3;
    CHECK(record.gpu.state == (is_timed ? GpuState::kTimed : GpuState::kMissing));
    CHECK(record.gpu.kernel_count == (is_timed ? kKernels : 0));
    CHECK(record.gpu.kernel_time_ns == (is_timed ? kKernels * 1'000 : 0));
  }
}
