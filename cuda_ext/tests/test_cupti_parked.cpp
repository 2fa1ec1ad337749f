#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "otel_straggler/cupti/parked.hpp"

using namespace otel_straggler::cupti;

namespace {

ParkedKernel kernel(WideId id, std::int64_t since_ns, std::uint32_t number) {
  return {{kConcurrentKernel, 0, 1, 2, 0, 7, nullptr}, id, number, true, since_ns};
}

// What is asked for by a poll at these.
std::vector<std::uint32_t> poll(ParkedKernels& parked, WideId reach, std::int64_t until_ns) {
  std::vector<std::uint32_t> seen;
  parked.poll(reach, until_ns, [&](ParkedKernel& one) {
    seen.push_back(one.kernel);
    return true;
  });
  std::sort(seen.begin(), seen.end());
  return seen;
}

}  // namespace

TEST_CASE("of parked kernels those come out whose id is reached, or that wait for too long") {
  std::mt19937_64 random(1);
  for (int times = 0; times < 20; ++times) {
    ParkedKernels parked;
    std::vector<ParkedKernel> model;
    std::uint32_t number = 0;
    for (std::int64_t now_ns = 0; now_ns < 60; ++now_ns) {
      for (std::uint64_t at = random() % 400; at > 0; --at) {
        const ParkedKernel one =
            kernel(static_cast<WideId>(now_ns) * 100 + random() % 1'000, now_ns, ++number);
        parked.push(one);
        model.push_back(one);
      }
      const WideId reach = static_cast<WideId>(now_ns) * 100 + random() % 500;
      std::vector<std::uint32_t> expected;
      const auto gone = std::stable_partition(model.begin(), model.end(), [&](const auto& one) {
        return one.id > reach && one.since_ns > now_ns - 8;
      });
      for (auto one = gone; one != model.end(); ++one) expected.push_back(one->kernel);
      model.erase(gone, model.end());
      std::sort(expected.begin(), expected.end());
      REQUIRE(poll(parked, reach, now_ns - 8) == expected);
      REQUIRE(parked.size() == model.size());
    }
    CHECK(poll(parked, UINT64_MAX, 0).size() == model.size());
    CHECK(parked.size() == 0);
  }
}

TEST_CASE("a kernel that is not done with stays, under the id that it was given") {
  ParkedKernels parked;
  parked.push(kernel(1, 0, 7));
  parked.poll(100, -1, [](ParkedKernel& one) {
    one.id = 200;
    return false;
  });
  CHECK(parked.size() == 1);
  CHECK(poll(parked, 199, -1).empty());
  CHECK(poll(parked, 200, -1) == std::vector<std::uint32_t>{7});
}

TEST_CASE("lots that are nearly empty are joined: memory is that of the kernels in them") {
  ParkedKernels parked;
  constexpr WideId kStays = 1'000'000;
  for (std::uint32_t at = 0; at < 1'000'000; ++at) {
    parked.push(kernel(at % 64 == 0 ? kStays : at % 1'000, 0, at));
    if (at % 1'000 == 999) poll(parked, 1'000, -1);
  }
  CHECK(parked.size() == 15'625);
  CHECK(parked.lots() <= 2 * parked.size() / 256 + 2);
  CHECK(parked.examined() < 2'000'000);
  parked.clear();
  CHECK(poll(parked, UINT64_MAX, 0).empty());
}
