#include <doctest/doctest.h>

#include "otel_straggler/cupti/progress.hpp"

using namespace otel_straggler::cupti;

namespace {

void run(Progress& progress, std::uint32_t device, std::uint32_t stream, WideId& id, int kernels) {
  for (int at = 0; at < kernels; ++at) progress.saw(device, stream, ++id);
}

}  // namespace

TEST_CASE("the GPU is beyond a launch when the main stream has ended a later one") {
  Progress progress;
  WideId id = kFirstWideId;
  CHECK_FALSE(progress.is_beyond(id));
  run(progress, 0, 7, id, 10);
  const WideId launch = ++id;
  run(progress, 0, 20, id, 1);  // a side stream is ahead
  CHECK_FALSE(progress.is_beyond(launch));
  run(progress, 0, 7, id, 1);
  CHECK(progress.is_beyond(launch));
}

TEST_CASE("every device that does real work must be beyond it, one that does little need not") {
  Progress progress;
  WideId id = kFirstWideId;
  run(progress, 0, 7, id, 100);
  run(progress, 1, 7, id, 50);
  run(progress, 2, 7, id, 1);
  const WideId launch = ++id;
  run(progress, 0, 7, id, 1);
  CHECK_FALSE(progress.is_beyond(launch));
  run(progress, 1, 7, id, 1);
  CHECK(progress.is_beyond(launch));
}

TEST_CASE("a stream of the warm-up is evicted, however busy it was") {
  Progress progress;
  WideId id = kFirstWideId;
  run(progress, 0, 7, id, 1'000'000);
  for (int flushes = 0; flushes < 16; ++flushes) {
    run(progress, 0, 8, id, 10);
    progress.flushed();
  }
  const WideId launch = ++id;
  run(progress, 0, 8, id, 1);
  CHECK(progress.is_beyond(launch));
}

TEST_CASE("the first moment at or after an end shows what had been launched by then") {
  Progress progress;
  std::uint32_t newest = 0;
  CHECK_FALSE(progress.newest_at(10, newest));
  for (std::uint32_t at = 0; at < 1'000; ++at) progress.record(at * 10, at);
  REQUIRE(progress.newest_at(9'001, newest));
  CHECK(newest == 901);
  REQUIRE(progress.newest_at(9'000, newest));
  CHECK(newest == 900);
  CHECK_FALSE(progress.newest_at(9'991, newest));
  REQUIRE(progress.newest_at(0, newest));  // too long ago to be known: later is safe
  CHECK(newest >= 700);
}
