// Launching without PyTorch's own cost: loops over the driver's functions, for benchmarks.gpu.
// Where there is no GPU, the driver is the fake libcupti, which launches by fake_launch().
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "otel_straggler/clocks.hpp"

namespace {

using otel_straggler::monotonic_ns;

struct Driver {
  int (*load_module)(void**, const void*);
  int (*get_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*get_context)(void**);
  int (*set_context)(void*);
  int (*synchronize)();
  int (*set_attribute)(void*, int, int);
  int (*get_version)(int*);
  int (*make_event)(void**, unsigned);
  int (*record_event)(void*, void*);
  int (*query_event)(void*);
  std::uint32_t (*fake_launch)(const char*, std::uint64_t, std::uint32_t, std::uint32_t);

  void* context = nullptr;  // of the thread that opened it
  void* empty = nullptr;
  void* spin = nullptr;
};
Driver driver{};

constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

template <typename Function>
bool get(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool get_all(void* library) {
  return get(library, "cuModuleLoadData", driver.load_module) &&
         get(library, "cuModuleGetFunction", driver.get_function) &&
         get(library, "cuLaunchKernel", driver.launch) &&
         get(library, "cuCtxGetCurrent", driver.get_context) &&
         get(library, "cuCtxSetCurrent", driver.set_context) &&
         get(library, "cuCtxSynchronize", driver.synchronize) &&
         get(library, "cuFuncSetAttribute", driver.set_attribute) &&
         get(library, "cuDriverGetVersion", driver.get_version) &&
         get(library, "cuEventCreate", driver.make_event) &&
         get(library, "cuEventRecord", driver.record_event) &&
         get(library, "cuEventQuery", driver.query_event);
}

int launch(bool spins, std::uint64_t ticks, unsigned blocks, unsigned threads, unsigned shared,
           void* stream) {
  if (driver.fake_launch != nullptr) {
    driver.fake_launch(spins ? "probe_spin" : "probe_empty", spins ? ticks : 1'000, 0, 7);
    return 0;
  }
  void* parameters[] = {&ticks};
  return driver.launch(spins ? driver.spin : driver.empty, blocks, 1, 1, threads, 1, 1, shared,
                       stream, spins ? parameters : nullptr, nullptr);
}

// All of so many threads are here before one goes on.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}
  void pass() {
    const int round = round_.load();
    if (waiting_.fetch_add(1) + 1 == threads_) {
      waiting_.store(0);
      round_.fetch_add(1);
    }
    while (round_.load() == round) std::this_thread::yield();
  }

 private:
  int threads_;
  std::atomic<int> waiting_{0};
  std::atomic<int> round_{0};
};

}  // namespace

extern "C" {

void probe_mark(std::uint64_t id);

// A context must be current. 0: ready; else the driver's result, or -1: a function is missing.
int launcher_open(const char* library, const char* kernels) {
  void* const found = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (found == nullptr) return -1;
  if (get(found, "fake_launch", driver.fake_launch)) {
    get(found, "cuDriverGetVersion", driver.get_version);
    return 0;
  }
  if (!get_all(found)) return -1;
  driver.get_context(&driver.context);
  void* module = nullptr;
  if (const int result = driver.load_module(&module, kernels); result != 0) return result;
  if (const int result = driver.get_function(&driver.empty, module, "probe_empty"); result != 0) {
    return result;
  }
  return driver.get_function(&driver.spin, module, "probe_spin");
}

// So many launches on a stream (0: the default one); the ns that they took the CPU, or the driver's
// result below 0. ticks: how long each spins; 0: the empty kernel.
std::int64_t launcher_launch(int times, std::uint64_t ticks, void* stream) {
  const std::int64_t began = monotonic_ns();
  for (int at = 0; at < times; ++at) {
    if (const int result = launch(ticks > 0, ticks, 1, 32, 0, stream); result != 0) return -result;
  }
  return monotonic_ns() - began;
}

// One launch that keeps so many multiprocessors: a block each, with so much shared memory that
// none other fits next to it. From any thread.
int launcher_occupy(std::uint64_t ticks, int blocks, int threads, int shared, void* stream) {
  if (driver.fake_launch == nullptr) driver.set_context(driver.context);
  if (driver.fake_launch == nullptr && shared > 48 * 1024) {
    const int result = driver.set_attribute(driver.spin, kMaxDynamicShared, shared);
    if (result != 0) return result;
  }
  return launch(true, ticks, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
                static_cast<unsigned>(shared), stream);
}

// Marks in this thread; between two of them `threads` threads launch `launches` kernels each, all
// after the one and before the other. So kernels between two marks must have ids between theirs.
int launcher_order(int rounds, int threads, int launches, std::uint64_t first_mark) {
  Gate begin(threads + 1);
  Gate end(threads + 1);
  std::atomic<int> worst{0};
  std::vector<std::thread> all;
  for (int at = 0; at < threads; ++at) {
    all.emplace_back([&] {
      if (driver.fake_launch == nullptr) driver.set_context(driver.context);
      for (int round = 0; round < rounds; ++round) {
        begin.pass();
        for (int one = 0; one < launches; ++one) {
          if (const int result = launch(false, 0, 1, 32, 0, nullptr); result != 0) worst = result;
        }
        end.pass();
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    probe_mark(first_mark + static_cast<std::uint64_t>(round));
    begin.pass();
    end.pass();
  }
  probe_mark(first_mark + static_cast<std::uint64_t>(rounds));
  for (std::thread& one : all) one.join();
  return worst;
}

// ns of so many cuEventRecord, and of as many cuEventQuery: out[0], out[1].
int launcher_time_events(int times, void* stream, std::int64_t* out) {
  if (driver.fake_launch != nullptr) return 0;
  std::vector<void*> events(static_cast<std::size_t>(times));
  for (void*& event : events) {
    if (const int result = driver.make_event(&event, 0); result != 0) return result;
  }
  std::int64_t began = monotonic_ns();
  for (void* event : events) driver.record_event(event, stream);
  out[0] = monotonic_ns() - began;
  driver.synchronize();
  began = monotonic_ns();
  for (void* event : events) driver.query_event(event);
  out[1] = monotonic_ns() - began;
  return 0;
}
}
