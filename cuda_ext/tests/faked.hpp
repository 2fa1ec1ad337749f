// A collector on the fake libcupti, its worker's rounds done by hand.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../fake/fake_cupti.hpp"
#include "otel_straggler/cupti/collector.hpp"

namespace faked {

using namespace otel_straggler;
using namespace otel_straggler::cupti;

inline LibraryRequest library_request() {
  LibraryRequest fake;
  fake.driver = "libcupti.so.13";  // it is its own driver
  return fake;
}

inline Collector& collector(bool prefers_launches, CollectorSettings settings = {}) {
  settings.prefers_launches = prefers_launches;
  Library library = load_library(library_request());
  REQUIRE(library.reason == "");
  return Collector::make(std::move(library), settings);
}

// A process with one thread that counts steps, in a world where time passes as specified.
struct Process {
  explicit Process(bool prefers_launches, CollectorSettings settings = {})
      : gpu(collector(prefers_launches, settings)) {
    REQUIRE(gpu.start() == "");
  }
  ~Process() { gpu.stop(monotonic_ns()); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Runs of sections, numbered by the caller.
  void begin(std::uint64_t span, std::uint32_t section) {
    Record run{};
    run.span = span;
    run.section = section;
    run.parent = open.empty() ? kNoSpan : open.back().span;
    run.start_ns = monotonic_ns();
    open.push_back(run);
    gpu.boundary(true, span, section);
  }
  void end() {
    Record run = open.back();
    open.pop_back();
    run.end_ns = monotonic_ns();
    const bool is_inside = !open.empty();
    gpu.ended(true, run.span, is_inside ? open.back().span : kNoSpan,
              is_inside ? open.back().section : 0);
    gpu.add(&run, 1);
  }

  // What is ready when so much more time has passed.
  std::vector<Record> ready(std::int64_t later_ns = 0) {
    std::vector<Record> records;
    gpu.drain_ready(monotonic_ns() + later_ns, records);
    return records;
  }

  Collector& gpu;
  std::vector<Record> open;
};

inline const KernelSummary* find(const std::vector<KernelSummary>& kernels, const std::string& name,
                                 std::uint32_t section) {
  for (const KernelSummary& kernel : kernels) {
    if (kernel.name == name && kernel.cell.section == section) return &kernel;
  }
  return nullptr;
}

// The fake as after its start, for each test again.
struct Fresh {
  Fresh() { fake_reset(); }
};

inline constexpr std::int64_t kLong = 3'000'000'000;  // longer than runs wait

}  // namespace faked
