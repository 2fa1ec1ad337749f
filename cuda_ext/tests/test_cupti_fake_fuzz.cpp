// Buffers that make no sense, or were cut short: read to their end or left, never trusted.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "faked.hpp"

using namespace faked;

namespace {

// What was read goes the way of what is real, but for names: those are pointers, and a mutated one
// leads nowhere. Time stands still, so that more kernels are parked than there is room for.
struct Sink {
  Pipeline& pipeline;
  std::int64_t now_ns = 1;
  std::uint64_t events = 0;

  void observe(const MarkEvent& mark) { pipeline.process(&mark, 1, nullptr, 0, now_ns); }
  void observe(GpuEvent event) {
    event.name = event.correlation % 2 == 0 ? "gemm" : "softmax";
    pipeline.process(nullptr, 0, &event, 1, now_ns);
    ++events;
  }
};

// As CUPTI would have filled it: kernels, marks, copies, graphs.
std::vector<std::uint8_t> sound_buffer(std::mt19937_64& random) {
  std::vector<std::uint8_t> buffer(16'384);
  static std::vector<std::uint8_t>* filled;
  filled = &buffer;
  static std::size_t used;
  used = 0;
  Library library = load_library(library_request());
  library.api.register_callbacks(
      [](std::uint8_t** bytes, std::size_t* size, std::size_t* max_records) {
        *bytes = filled->data();
        *size = filled->size();
        *max_records = 0;
      },
      [](void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t valid) { used = valid; });
  for (const Kind kind : {kMemcpy, kExternalCorrelation}) library.api.enable(kind);
  library.api.enable_driver_api(kGetVersionCall, 1);
  const bool is_whole = random() % 2 == 0;
  library.api.enable(is_whole ? kGraphTrace : kConcurrentKernel);
  const char* const nodes[] = {"gemm"};
  for (int at = 0; at < 8; ++at) {
    library.api.push_external(kExternalKindCustom2, (std::uint64_t{random() % 8} << 32) | 3);
    int version = 0;
    library.get_driver_version(&version);
    library.api.pop_external(kExternalKindCustom2, nullptr);
    fake_launch("gemm", 100, 0, 7);
    fake_launch_graph(nodes, 1, 10, 0, 7);
    fake_memcpy(10, 10);
  }
  library.api.flush_all(0);
  buffer.resize(used);
  return buffer;
}

// Who walks over the records: the fake, or the real library that CUPTI_LIBRARY names. Without a
// driver it can do that much, up to CUDA 13.1.
Library walker() {
  const char* const given = std::getenv("CUPTI_LIBRARY");
  LibraryRequest real = library_request();
  if (given != nullptr) {
    real.path = given;
    real.driver = "libc.so.6";
  }
  const Library library = load_library(real);
  REQUIRE(library.reason == "");
  if (given != nullptr) REQUIRE(library.path == given);
  return library;
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kInputs = 200'000;  // a step too far is seen only here
#else
constexpr std::uint64_t kInputs = 20'000;
#endif

// So many fill the queue of parked kernels.
constexpr std::uint64_t kEnough = 8'000;

// Those that are asked for, or as many as CI has time for.
std::uint64_t inputs_wanted() {
  const char* const given = std::getenv("FUZZ_INPUTS");
  return given == nullptr ? kInputs : std::strtoull(given, nullptr, 10) / 5;
}

}  // namespace

TEST_CASE("sound buffers are walked to their end, by the fake and by a real library") {
  fake_reset();
  const Library library = walker();
  fake_set("version", library.version);
  CurrentRun current;
  Marks marks;
  Launches launches;
  Pipeline pipeline(Way::kMarks, current.directory(), marks, launches);
  Sink sink{pipeline};
  std::mt19937_64 random(1);
  for (int times = 0; times < 10; ++times) {
    std::vector<std::uint8_t> buffer = sound_buffer(random);
    CHECK(walk(library.api.get_next_record, buffer.data(), buffer.size(), sink) ==
          kMaxLimitReached);
    fake_reset();
    fake_set("version", library.version);
  }
  CHECK(sink.events >= 10 * 16);
}

TEST_CASE("mangled buffers are read as far as they make sense") {
  const std::uint64_t inputs = inputs_wanted();
  std::mt19937_64 random(1);
  const Library library = walker();
  const std::uint32_t version = library.version;
  CurrentRun current;
  Marks marks;
  Launches launches;
  Pipeline pipeline(Way::kMarks, current.directory(), marks, launches);
  Sink sink{pipeline};
  pipeline.begin(sink.now_ns, 1);
  for (int at = 0; at < 8; ++at) static_cast<void>(marks.issue(3));  // the buffers have seven
  std::size_t max_parked = 0;
  std::uint64_t ended = 0;
  std::uint64_t broken = 0;
  std::vector<std::uint8_t> sound;
  for (std::uint64_t input = 0; input < inputs; ++input) {
    if (input % 500 == 0) {
      fake_reset();
      const bool is_real = std::getenv("CUPTI_LIBRARY") != nullptr;
      fake_set("version", is_real ? version : (input % 1'000 == 0 ? 130'500 : 18));
      sound = sound_buffer(random);
      REQUIRE(sound.size() > 1'000);
    }
    // A copy of its own length, so that a step too far is seen.
    std::vector<std::uint8_t> buffer(sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(
                                                        random() % 3 == 0 ? random() % sound.size()
                                                                          : sound.size()));
    for (std::uint64_t at = random() % 8; at > 0 && !buffer.empty(); --at) {
      const std::size_t place = random() % buffer.size();
      buffer[random() % 4 == 0 ? place / 8 * 8 : place] = static_cast<std::uint8_t>(random());
    }
    buffer.shrink_to_fit();
    const Result end =
        walk(library.api.get_next_record, buffer.data(), buffer.size(), sink);
    ++(end == kMaxLimitReached ? ended : broken);
    if (input % 100 == 0) pipeline.tend(sink.now_ns);
    max_parked = std::max(max_parked, pipeline.parked().size());
  }
  CHECK(ended > inputs / 10);
  CHECK(broken > inputs / 10);
  CHECK(sink.events > inputs);
  CHECK(pipeline.counts().events == sink.events);
  CHECK(max_parked <= Pipeline::kMaxParked);
  if (inputs >= kEnough) CHECK(max_parked == Pipeline::kMaxParked);
  // A full queue is not looked through with every mark.
  CHECK(pipeline.parked().examined() < 8 * sink.events);
  fake_reset();
}

TEST_CASE("a library whose walk does not get on is left, not followed forever") {
  CurrentRun current;
  Marks marks;
  Launches launches;
  Pipeline pipeline(Way::kMarks, current.directory(), marks, launches);
  Sink sink{pipeline};
  std::vector<std::uint8_t> buffer(64);
  const auto stays = [](std::uint8_t* bytes, std::size_t, void** record) {
    *record = bytes;
    return kSuccess;
  };
  const auto leaves = [](std::uint8_t* bytes, std::size_t valid, void** record) {
    *record = bytes + valid;
    return kSuccess;
  };
  CHECK(walk(stays, buffer.data(), buffer.size(), sink) == kUnknown);
  CHECK(walk(leaves, buffer.data(), buffer.size(), sink) == kUnknown);
}
