// CUPTI itself, for benchmarks.gpu: what our own timer does not do (records of calls, kinds switched
// on and off at every section, a walk as NVRx does it), and what a call costs. Plain C functions,
// loaded by ctypes (native.py). Nothing here runs in a training job.
//
// Callbacks of CUPTI take no lock that is held while CUPTI is called, and never Python's.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "otel_straggler/clocks.hpp"
#include "otel_straggler/cupti/abi.hpp"
#include "otel_straggler/cupti/library.hpp"

namespace {

using namespace otel_straggler;
using namespace otel_straggler::cupti;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr Kind kRuntime = 5;

// A record of a driver or runtime call; the same offsets in all versions.
struct CallPrefix {
  Kind kind;
  std::uint32_t call;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t process;
  std::uint32_t thread;
  std::uint32_t correlation;
};
static_assert(offsetof(CallPrefix, thread) == 28 && offsetof(CallPrefix, correlation) == 32);

// What Python gets of a record; see SEEN in native.py.
struct Seen {
  std::uint32_t kind;
  std::uint32_t call;  // of a call: which one; of external correlation: its kind
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t external;
  std::uint32_t device;
  std::uint32_t stream;
  std::uint32_t correlation;
  std::uint32_t thread;
  std::uint32_t graph;
  std::uint32_t name;
};
static_assert(sizeof(Seen) == 56);

enum class Reading : int { kCount = 0, kKeep = 1, kByText = 2 };

struct Buffer {
  std::uint8_t* bytes;
  std::size_t valid;
};

struct Counts {
  std::atomic<std::uint64_t> kernels{0}, kernel_ns{0}, invalid{0}, other{0}, dropped{0};
  std::atomic<std::uint64_t> requested{0}, completed{0}, bytes{0}, garbage{0};
};

struct Probe {
  Library library;
  Subscriber subscriber = nullptr;
  std::mutex mutex;  // of the next two; never while CUPTI is called
  std::vector<Buffer> full;
  std::vector<std::uint8_t*> spare;
  std::mutex seen_mutex;
  std::vector<Seen> seen;
  std::map<std::string, std::uint32_t> numbers;
  std::vector<std::string> names;
  std::unordered_map<std::string, std::vector<float>> by_text;
  std::mutex marks_mutex;  // of marks by a callback; CUPTI is never called while it is held
  std::vector<Seen> marks;
  std::atomic<bool> marks_by_callback{false};
  std::atomic<Reading> reading{Reading::kCount};
  Counts counts;
  std::mutex turn;  // one reader at a time
  std::mutex sleep_mutex;
  std::condition_variable sleep;
  bool is_ending = false;
  std::thread thread;
};

Probe& probe() {
  static Probe* const one = new Probe();  // CUPTI may call after main() has ended
  return *one;
}

void on_request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) noexcept {
  Probe& it = probe();
  *max_records = 0;
  *size = kBufferBytes;
  *buffer = nullptr;
  it.counts.requested.fetch_add(1);
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    if (!it.spare.empty()) {
      *buffer = it.spare.back();
      it.spare.pop_back();
    }
  }
  if (*buffer == nullptr) *buffer = static_cast<std::uint8_t*>(std::calloc(1, kBufferBytes));
  if (*buffer == nullptr) *size = 0;
}

void on_completed(Context, std::uint32_t, std::uint8_t* buffer, std::size_t,
                  std::size_t valid) noexcept {
  Probe& it = probe();
  it.counts.completed.fetch_add(1);
  if (buffer == nullptr) return;
  const std::lock_guard<std::mutex> lock(it.mutex);
  it.full.push_back({buffer, valid});
}

template <typename Prefix>
Prefix read(const void* record) {
  Prefix prefix;
  std::memcpy(&prefix, record, sizeof(prefix));
  return prefix;
}

std::uint32_t number_of(const char* name) {
  Probe& it = probe();
  const auto [found, is_new] =
      it.numbers.emplace(name == nullptr ? "" : name, static_cast<std::uint32_t>(it.names.size()));
  if (is_new) it.names.push_back(found->first);
  return found->second;
}

void keep(const void* record, Kind kind) {
  Seen seen{};
  seen.kind = kind;
  if (kind == kConcurrentKernel) {
    const auto kernel = read<KernelPrefix>(record);
    seen = {kind, 0, kernel.start, kernel.end, kernel.graph_node, kernel.device, kernel.stream,
            kernel.correlation, 0, kernel.graph, number_of(kernel.name)};
  } else if (kind == kDriver || kind == kRuntime) {
    const auto call = read<CallPrefix>(record);
    seen = {kind, call.call, call.start, call.end, 0, 0, 0, call.correlation, call.thread, 0, 0};
  } else if (kind == kExternalCorrelation) {
    const auto link = read<ExternalCorrelation>(record);
    seen = {kind, link.external_kind, 0, 0, link.external_id, 0, 0, link.correlation, 0, 0, 0};
  } else if (kind == kGraphTrace) {
    const auto graph = read<GraphPrefix>(record);
    seen = {kind, 0, graph.start, graph.end, 0, graph.device, graph.stream, graph.correlation, 0,
            graph.graph, 0};
  } else if (kind == kMemcpy || kind == kMemset) {
    const auto memory = read<MemoryPrefix>(record);
    seen = {kind, 0, memory.start, memory.end, 0, memory.device, memory.stream, memory.correlation,
            0, 0, 0};
  }
  probe().seen.push_back(seen);
}

// As NVRx counts: a text of name and shape for each record, and the newest times by that text.
void count_by_text(const KernelPrefix& kernel) {
  char text[1024];
  const char* const name = kernel.name == nullptr ? "" : kernel.name;
  std::snprintf(text, sizeof(text), "%s_grid_%u_%u_%u_block_%u_%u_%u", name, kernel.skipped_52[0],
                kernel.skipped_52[1], kernel.skipped_52[2], kernel.skipped_52[3],
                kernel.skipped_52[4], kernel.skipped_52[5]);
  std::vector<float>& times = probe().by_text[text];
  if (times.size() >= 4096) times.erase(times.begin(), times.begin() + 2048);
  times.push_back(static_cast<float>(kernel.end - kernel.start) * 1e-3F);
}

void decode(const void* record, Reading reading) {
  Counts& counts = probe().counts;
  const auto kind = read<Kind>(record);
  if (kind != kConcurrentKernel) {
    counts.other.fetch_add(1);
  } else {
    const auto kernel = read<KernelPrefix>(record);
    counts.kernels.fetch_add(1);
    const bool is_valid = kernel.start != 0 && kernel.end >= kernel.start;
    if (!is_valid) counts.invalid.fetch_add(1);
    if (is_valid) counts.kernel_ns.fetch_add(kernel.end - kernel.start);
    if (reading == Reading::kByText && is_valid) count_by_text(kernel);
  }
  if (reading == Reading::kKeep) keep(record, kind);
}

void walk(const Buffer& buffer) {
  Probe& it = probe();
  const Reading reading = it.reading.load();
  void* record = nullptr;
  Result result = kSuccess;
  const std::lock_guard<std::mutex> lock(it.seen_mutex);
  while ((result = it.library.api.get_next_record(buffer.bytes, buffer.valid, &record)) ==
         kSuccess) {
    decode(record, reading);
  }
  it.counts.bytes.fetch_add(buffer.valid);
  if (result != kMaxLimitReached) it.counts.garbage.fetch_add(1);
}

// Marks by a callback go where marks by records are.
void keep_marks() {
  Probe& it = probe();
  std::vector<Seen> marks;
  {
    const std::lock_guard<std::mutex> lock(it.marks_mutex);
    marks.swap(it.marks);
  }
  if (it.reading.load() != Reading::kKeep) return;
  const std::lock_guard<std::mutex> lock(it.seen_mutex);
  it.seen.insert(it.seen.end(), marks.begin(), marks.end());
}

void drain() {
  Probe& it = probe();
  const std::lock_guard<std::mutex> turn(it.turn);
  std::vector<Buffer> full;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    full.swap(it.full);
  }
  for (const Buffer& buffer : full) {
    walk(buffer);
    std::memset(buffer.bytes, 0, kBufferBytes);
    const std::lock_guard<std::mutex> lock(it.mutex);
    it.spare.push_back(buffer.bytes);
  }
  keep_marks();
}

void run() {
  Probe& it = probe();
  std::unique_lock<std::mutex> lock(it.sleep_mutex);
  while (!it.is_ending) {
    lock.unlock();
    drain();
    lock.lock();
    it.sleep.wait_for(lock, std::chrono::milliseconds(100), [&] { return it.is_ending; });
  }
}

std::uint64_t wall_clock() noexcept { return static_cast<std::uint64_t>(wall_ns()); }

void on_call(void*, std::uint32_t, std::uint32_t, const void*) noexcept {
  probe().counts.other.fetch_add(1, std::memory_order_relaxed);
}

constexpr std::uint32_t kGetVersion = 2;  // cuDriverGetVersion
thread_local std::uint64_t mark_of_thread = 0;

// At a mark's call: its correlation id is in the callback's data.
void on_mark(void*, std::uint32_t domain, std::uint32_t call, const void* data) noexcept {
  if (domain != kDriverDomain || call != kGetVersion) return;
  const auto callback = read<CallbackData>(data);
  if (callback.site != 0) return;
  const std::lock_guard<std::mutex> lock(probe().marks_mutex);
  probe().marks.push_back({kExternalCorrelation, kExternalKindCustom2, 0, 0, mark_of_thread, 0, 0,
                           callback.correlation, 0, 0, 0});
}

}  // namespace

extern "C" {

// Why there is no usable library; empty: there is.
const char* probe_open(const char* path, const char* folder, const char* driver) {
  LibraryRequest request;
  request.path = path;
  request.folder = folder;
  if (*driver != 0) request.driver = driver;
  probe().library = load_library(request);
  return probe().library.reason.c_str();
}

const char* probe_path() { return probe().library.path.c_str(); }
std::uint32_t probe_version() { return probe().library.version; }
void probe_reading(int reading) { probe().reading = static_cast<Reading>(reading); }

// Results of CUPTI, 0 = done. Registers our clock and callbacks, and says that buffers are zeroed.
int probe_register() {
  const Api& api = probe().library.api;
  std::uint8_t yes = 1;
  std::size_t size = sizeof(yes);
  api.set_attribute(kZeroedOutBuffers, &size, &yes);
  if (api.register_clock != nullptr) api.register_clock(wall_clock);
  {
    const std::lock_guard<std::mutex> lock(probe().mutex);
    while (probe().spare.size() < 8) {
      probe().spare.push_back(static_cast<std::uint8_t*>(std::calloc(1, kBufferBytes)));
      std::memset(probe().spare.back(), 0, kBufferBytes);  // so that its pages are there
    }
  }
  return api.register_callbacks(on_request, on_completed);
}

int probe_enable(std::uint32_t kind) { return probe().library.api.enable(kind); }
int probe_disable(std::uint32_t kind) { return probe().library.api.disable(kind); }
int probe_push(std::uint32_t kind, std::uint64_t id) {
  return probe().library.api.push_external(kind, id);
}
int probe_pop(std::uint32_t kind) {
  std::uint64_t id = 0;
  return probe().library.api.pop_external(kind, &id);
}
int probe_driver_call(std::uint32_t call, int on) {
  const Api& api = probe().library.api;
  if (api.enable_driver_api == nullptr) return -1;
  return api.enable_driver_api(call, static_cast<std::uint8_t>(on));
}
// All calls that launch; the first result that is not 0.
int probe_launch_calls(int on) {
  for (const std::uint32_t call : kLaunchCalls) {
    if (const int result = probe_driver_call(call, on); result != 0) return result;
  }
  return 0;
}
// calls: 0 none; 1 all that launch; 2 the call of a mark, which then needs no record.
int probe_subscribe(int calls) {
  Probe& it = probe();
  const Api& api = it.library.api;
  const int result = api.subscribe(&it.subscriber, calls == 2 ? on_mark : on_call, nullptr);
  if (result != 0) return result;
  it.marks_by_callback = calls == 2;
  if (calls == 2) return api.enable_callback(1, it.subscriber, kDriverDomain, kGetVersion);
  for (const std::uint32_t call : kLaunchCalls) {
    if (calls == 1) api.enable_callback(1, it.subscriber, kDriverDomain, call);
  }
  return result;
}
int probe_unsubscribe() {
  Probe& it = probe();
  it.marks_by_callback = false;
  return it.library.api.unsubscribe(std::exchange(it.subscriber, nullptr));
}

// A call that is recorded, with `id` attached, or that has a callback: what our timer does at a
// boundary.
void probe_mark(std::uint64_t id) {
  int version = 0;
  if (probe().marks_by_callback.load(std::memory_order_relaxed)) {
    mark_of_thread = id;
    probe().library.get_driver_version(&version);
    return;
  }
  probe_push(kExternalKindCustom2, id);
  probe().library.get_driver_version(&version);
  probe_pop(kExternalKindCustom2);
}

int probe_flush(std::uint32_t flag) {
  Probe& it = probe();
  const int result = it.library.api.flush_all(flag);
  drain();
  std::size_t dropped = 0;
  if (it.library.api.get_dropped(nullptr, 0, &dropped) == kSuccess) it.counts.dropped += dropped;
  return result;
}

void probe_start_thread() {
  probe().is_ending = false;
  probe().thread = std::thread(run);
}
void probe_stop_thread() {
  Probe& it = probe();
  {
    const std::lock_guard<std::mutex> lock(it.sleep_mutex);
    it.is_ending = true;
  }
  it.sleep.notify_all();
  if (it.thread.joinable()) it.thread.join();
}

// What was kept since the last time, at most `room`; how many.
std::size_t probe_take(Seen* out, std::size_t room) {
  Probe& it = probe();
  const std::lock_guard<std::mutex> lock(it.seen_mutex);
  const std::size_t count = std::min(room, it.seen.size());
  if (count > 0) std::memcpy(out, it.seen.data(), count * sizeof(Seen));
  it.seen.erase(it.seen.begin(), it.seen.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}
std::size_t probe_kept() {
  const std::lock_guard<std::mutex> lock(probe().seen_mutex);
  return probe().seen.size();
}
const char* probe_name(std::uint32_t number) {
  const std::lock_guard<std::mutex> lock(probe().seen_mutex);
  return number < probe().names.size() ? probe().names[number].c_str() : "";
}

// kernels, kernel_ns, invalid, other records, dropped, buffers asked for, given back, bytes, broken
void probe_counts(std::uint64_t* out) {
  const Counts& counts = probe().counts;
  const std::atomic<std::uint64_t>* const all[] = {
      &counts.kernels, &counts.kernel_ns, &counts.invalid,   &counts.other,  &counts.dropped,
      &counts.requested, &counts.completed, &counts.bytes, &counts.garbage};
  for (std::size_t at = 0; at < sizeof(all) / sizeof(all[0]); ++at) out[at] = all[at]->load();
}

// ns of so many calls together. what: enable+disable of kernels, flush, push+pop, driver call,
// mark, subscribe+unsubscribe, clock
std::int64_t probe_time(int what, int times) {
  const Api& api = probe().library.api;
  const std::int64_t began = monotonic_ns();
  int version = 0;
  for (int at = 0; at < times; ++at) {
    switch (what) {
      case 0: api.enable(kConcurrentKernel); api.disable(kConcurrentKernel); break;
      case 1: api.flush_all(0); break;
      case 2: probe_push(kExternalKindCustom2, 1); probe_pop(kExternalKindCustom2); break;
      case 3: probe().library.get_driver_version(&version); break;
      case 4: probe_mark(static_cast<std::uint64_t>(at)); break;
      case 5: probe_subscribe(0); probe_unsubscribe(); break;
      default: wall_clock(); break;
    }
  }
  return monotonic_ns() - began;
}
}
