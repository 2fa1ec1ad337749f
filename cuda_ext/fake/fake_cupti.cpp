// A libcupti without a GPU, for tests: the same functions, records laid out by offsets of its own.
//
// It models what matters of the real one: records of a launch come later, in any order, in buffers
// that the client gives; the last client to register its callbacks gets everything; there is one
// subscriber; a running kernel holds its buffer back. What of this was measured, and what is only
// believed: README.md in this folder. Built as libcupti.so.13, never shipped.
#include "fake_cupti.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ctime>

namespace {

using Bytes = std::vector<std::uint8_t>;
using Request = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Completed = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
using OnCall = void (*)(void*, std::uint32_t, std::uint32_t, const void*);

struct Buffer {
  std::uint8_t* bytes = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  unsigned waits = 0;  // flushes until it is delivered
};

constexpr const char* kSettings[] = {
    "version", "correlation",      "zero_every", "backward_every", "shuffle", "hold",
    "late",    "other_subscriber", "drop_every", "per_thread",     "captured_untraced"};
constexpr std::uint32_t kDriverKind = 4;
constexpr std::uint32_t kIdsOfLaunch = 7;  // taken by a launch that is not recorded
constexpr std::size_t kSettingCount = sizeof(kSettings) / sizeof(kSettings[0]);

struct Fake {
  std::mutex mutex;
  std::atomic<std::uint64_t> settings[kSettingCount] = {};
  std::map<std::string, int> failures;
  std::map<std::string, std::uint64_t> counts;
  std::set<std::uint32_t> kinds;
  std::set<std::uint32_t> calls_off;  // of the kind DRIVER
  std::set<std::uint32_t> callback_calls;
  Request request = nullptr;
  Completed completed = nullptr;
  OnCall on_call = nullptr;
  void* user = nullptr;
  std::deque<Bytes> running;            // records whose kernels have not ended
  std::map<std::uint32_t, Buffer> open;  // by thread, or all under 0
  std::vector<Buffer> full;
  std::uint64_t dropped = 0;
  std::atomic<std::uint64_t> kernels{0};
  std::uint64_t gpu_ns = 0;
  std::mt19937_64 random{1};
  std::atomic<std::uint64_t (*)()> clock{nullptr};  // of the client who registered one last
};

Fake& fake() {
  static Fake* const one = new Fake();  // outlives every thread
  return *one;
}

std::atomic<std::uint32_t> correlation{0};
std::atomic<std::uint32_t> threads{0};
thread_local std::uint32_t thread_number = 0;
thread_local std::vector<std::pair<std::uint32_t, std::uint64_t>> external;  // kind, id

std::uint32_t this_thread() {
  if (thread_number == 0) thread_number = ++threads;
  return thread_number;
}

std::atomic<std::uint64_t>& setting_at(const char* name) {
  for (std::size_t at = 0; at < kSettingCount; ++at) {
    if (std::strcmp(kSettings[at], name) == 0) return fake().settings[at];
  }
  std::abort();  // a test that sets what is not there tests nothing
}

std::uint64_t setting(const char* name) { return setting_at(name); }

int outcome(const char* function) {
  Fake& it = fake();
  const std::lock_guard<std::mutex> lock(it.mutex);
  ++it.counts[function];
  const auto found = it.failures.find(function);
  return found == it.failures.end() ? 0 : found->second;
}

std::uint64_t now_ns() {
  if (std::uint64_t (*clock)() = fake().clock.load(); clock != nullptr) return clock();
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t version() {
  static const std::atomic<std::uint64_t>& place = setting_at("version");
  const std::uint64_t set = place.load(std::memory_order_relaxed);
  return set == 0 ? 130'000 : set;
}

std::size_t kernel_bytes() {
  const std::uint64_t now = version();
  if (now < 130'000) return now < 20 ? 200 : 208;
  if (now < 130'100) return 216;
  if (now < 130'300) return 224;
  return now < 130'400 ? 232 : 248;
}

std::size_t bytes_of(std::uint32_t kind) {
  const std::uint64_t now = version();
  switch (kind) {
    case 1: return now < 26 ? 88 : (now < 130'400 ? 96 : 112);
    case 2: return now < 130'400 ? 88 : 104;
    case 4: case 5: return 40;
    case 10: case 3: return kernel_bytes();
    case 39: return 24;
    case 51: return now < 22 ? 48 : 56;
    default: return 0;
  }
}

template <typename Value>
void put(Bytes& record, std::size_t offset, Value value) {
  std::memcpy(record.data() + offset, &value, sizeof(value));
}

Bytes record_of(std::uint32_t kind) {
  Bytes record(bytes_of(kind));
  put(record, 0, kind);
  return record;
}

// --- buffers: called without the lock, which a client's callback must not meet -------------------

void deliver(const Buffer& buffer) {
  Completed completed = nullptr;
  {
    const std::lock_guard<std::mutex> lock(fake().mutex);
    completed = fake().completed;
  }
  if (completed != nullptr) completed(nullptr, 0, buffer.bytes, buffer.size, buffer.used);
}

void drop(std::uint64_t records) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().dropped += records;
}

bool open_buffer(Buffer& buffer) {
  Request request = nullptr;
  {
    const std::lock_guard<std::mutex> lock(fake().mutex);
    request = fake().request;
  }
  std::size_t max_records = 0;
  if (request != nullptr) request(&buffer.bytes, &buffer.size, &max_records);
  if (buffer.bytes != nullptr && buffer.size != 0) return true;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  ++fake().counts["declined"];
  return false;
}

void write(const Bytes& record) {
  Fake& it = fake();
  const std::uint32_t owner = setting("per_thread") != 0 ? this_thread() : 0;
  Buffer buffer;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    buffer = std::exchange(it.open[owner], Buffer());
  }
  Buffer full;
  if (buffer.bytes != nullptr && buffer.used + record.size() > buffer.size) {
    full = std::exchange(buffer, Buffer());
  }
  if (buffer.bytes == nullptr && !open_buffer(buffer)) {
    drop(1);
    if (full.bytes != nullptr) deliver(full);
    return;
  }
  std::memcpy(buffer.bytes + buffer.used, record.data(), record.size());
  buffer.used += record.size();
  Buffer pushed_out;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    pushed_out = std::exchange(it.open[owner], buffer);  // another thread's, if they share one
    if (pushed_out.bytes != nullptr) it.full.push_back(pushed_out);
    if (full.bytes != nullptr && setting("late") != 0) {
      full.waits = static_cast<unsigned>(setting("late"));
      it.full.push_back(std::exchange(full, Buffer()));
    }
  }
  if (full.bytes != nullptr) deliver(full);
}

// Lets kernels end: all but those in the window that is shuffled.
void end_kernels(std::size_t window) {
  Fake& it = fake();
  for (;;) {
    Bytes record;
    {
      const std::lock_guard<std::mutex> lock(it.mutex);
      if (setting("hold") != 0 || it.running.size() <= window) return;
      const std::size_t of = std::min<std::size_t>(it.running.size(), setting("shuffle") + 1);
      const std::size_t at = it.random() % of;
      record = std::move(it.running[at]);
      it.running.erase(it.running.begin() + static_cast<std::ptrdiff_t>(at));
    }
    write(record);
  }
}

// Its buffer is asked for on the launching thread.
void run(Bytes record) {
  Fake& it = fake();
  const std::uint32_t owner = setting("per_thread") != 0 ? this_thread() : 0;
  bool has_buffer = false;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    it.running.push_back(std::move(record));
    has_buffer = it.open[owner].bytes != nullptr;
  }
  Buffer fresh;
  if (!has_buffer && open_buffer(fresh)) {
    const std::lock_guard<std::mutex> lock(it.mutex);
    Buffer& open = it.open[owner];
    (open.bytes == nullptr ? open : it.full.emplace_back()) = fresh;
  }
  end_kernels(setting("shuffle"));
}

// --- calls of the driver -------------------------------------------------------------------------

struct CallbackData {
  std::uint32_t site;
  const char* function;
  const void* arguments;
  void* answer;
  const char* symbol;
  void* context;
  std::uint32_t context_number;
  std::uint64_t* correlation_data;
  std::uint32_t correlation_id;
};

void notify_subscriber(std::uint32_t call, std::uint32_t id, std::uint32_t site) {
  Fake& it = fake();
  OnCall on_call = nullptr;
  void* user = nullptr;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    if (it.callback_calls.count(call) == 0) return;
    on_call = it.on_call;
    user = it.user;
  }
  CallbackData data{};
  data.site = site;
  data.function = "fake";
  data.correlation_id = id;
  if (on_call != nullptr) on_call(user, 1, call, &data);
}

// An API record, and before it what this thread has pushed. Both need the kind DRIVER: a call that
// was enabled by itself gives neither.
void trace_call(std::uint32_t call, std::uint32_t id) {
  bool is_correlated = false;
  {
    const std::lock_guard<std::mutex> lock(fake().mutex);
    if (fake().kinds.count(kDriverKind) == 0 || fake().calls_off.count(call) != 0) return;
    is_correlated = fake().kinds.count(39) != 0;
  }
  std::set<std::uint32_t> reported;
  for (auto at = external.rbegin(); is_correlated && at != external.rend(); ++at) {
    if (!reported.insert(at->first).second) continue;
    Bytes record = record_of(39);
    put(record, 4, at->first);
    put(record, 8, at->second);
    put(record, 16, id);
    write(record);
  }
  Bytes record = record_of(4);
  put(record, 4, call);
  put(record, 8, now_ns());
  put(record, 16, now_ns());
  put(record, 28, this_thread());
  put(record, 32, id);
  write(record);
}

bool is_recorded(std::uint32_t kind) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  return fake().kinds.count(kind) != 0;
}

Bytes kernel_record(const char* name, std::uint64_t start_ns, std::uint64_t end_ns,
                    std::uint32_t device, std::uint32_t stream, std::uint32_t id) {
  Bytes record = record_of(10);
  const std::uint64_t number = ++fake().kernels;
  const std::uint64_t zero_every = setting("zero_every");
  const std::uint64_t backward_every = setting("backward_every");
  if (zero_every != 0 && number % zero_every == 0) start_ns = end_ns = 0;
  if (backward_every != 0 && number % backward_every == 0) std::swap(start_ns, end_ns);
  put(record, 16, start_ns);
  put(record, 24, end_ns);
  put(record, 32, end_ns);
  put(record, 40, device);
  put(record, 44, std::uint32_t{1});
  put(record, 48, stream);
  put(record, 92, id);
  put(record, 104, name);
  return record;
}

std::pair<std::uint64_t, std::uint64_t> next_on_gpu(std::uint64_t duration_ns) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  const std::uint64_t now = now_ns();
  if (fake().gpu_ns < now) fake().gpu_ns = now;
  const std::uint64_t start = fake().gpu_ns;
  fake().gpu_ns += duration_ns;
  return {start, start + duration_ns};
}

// The call that launches; the answer is its id.
std::uint32_t begin_launch(std::uint32_t call) {
  const bool has_record = is_recorded(10) || is_recorded(51);
  const std::uint32_t id = correlation += has_record ? 1 : kIdsOfLaunch;
  notify_subscriber(call, id, 0);
  notify_subscriber(call, id, 1);
  trace_call(call, id);
  return id;
}

void run_kernel(const Bytes& record) {
  const std::uint64_t drop_every = setting("drop_every");
  if (drop_every != 0 && fake().kernels % drop_every == 0) return drop(1);
  run(record);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void fake_reset(void) {
  Fake& it = fake();
  const std::lock_guard<std::mutex> lock(it.mutex);
  for (auto& one : it.settings) one = 0;
  it.failures.clear();
  it.counts.clear();
  it.kinds.clear();
  it.calls_off.clear();
  it.callback_calls.clear();
  it.request = nullptr;
  it.completed = nullptr;
  it.on_call = nullptr;
  it.running.clear();
  it.open.clear();
  it.full.clear();
  it.dropped = it.gpu_ns = 0;
  it.kernels = 0;
  it.clock = nullptr;
  correlation = 0;
  if (const char* given = std::getenv("FAKE_CUPTI_VERSION"); given != nullptr) {
    setting_at("version") = std::strtoull(given, nullptr, 10);
  }
  const char* failures = std::getenv("FAKE_CUPTI_FAIL");
  std::string left = failures == nullptr ? "" : failures;
  while (!left.empty()) {
    const std::string one = left.substr(0, left.find(','));
    left = one.size() < left.size() ? left.substr(one.size() + 1) : "";
    const std::size_t colon = one.find(':');
    if (colon != std::string::npos) {
      it.failures[one.substr(0, colon)] = std::atoi(one.c_str() + colon + 1);
    }
  }
}

__attribute__((constructor)) static void read_environment(void) { fake_reset(); }

void fake_fail(const char* function, int code) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().failures[function] = code;
  if (code == 0) fake().failures.erase(function);
}

void fake_set(const char* name, std::uint64_t value) {
  setting_at(name) = value;
  if (std::strcmp(name, "correlation") == 0) correlation = static_cast<std::uint32_t>(value);
  if (std::strcmp(name, "hold") == 0 && value == 0) end_kernels(setting("shuffle"));
}

// Calls of a function by its name; "declined" buffers; or "kinds", "calls_off", "callback_calls",
// "subscribers".
std::uint64_t fake_get(const char* count) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  const std::string name = count;
  if (name == "kinds") return fake().kinds.size();
  if (name == "calls_off") return fake().calls_off.size();
  if (name == "callback_calls") return fake().callback_calls.size();
  if (name == "subscribers") return fake().on_call != nullptr;
  return fake().counts[name];
}

std::uint32_t fake_launch_at(const char* name, std::uint64_t start_ns, std::uint64_t end_ns,
                             std::uint32_t device, std::uint32_t stream) {
  const std::uint32_t id = begin_launch(307);
  if (is_recorded(10)) run_kernel(kernel_record(name, start_ns, end_ns, device, stream, id));
  return id;
}

std::uint32_t fake_launch(const char* name, std::uint64_t duration_ns, std::uint32_t device,
                          std::uint32_t stream) {
  const auto [start, end] = next_on_gpu(duration_ns);
  return fake_launch_at(name, start, end, device, stream);
}

std::uint32_t fake_launch_graph(const char* const* names, std::size_t count,
                                std::uint64_t duration_ns, std::uint32_t device,
                                std::uint32_t stream) {
  const std::uint32_t id = begin_launch(514);
  if (is_recorded(51)) {  // this one suppresses the records of its kernels
    const auto [start, end] = next_on_gpu(duration_ns * count);
    Bytes record = record_of(51);
    put(record, 4, id);
    put(record, 8, start);
    put(record, 16, end);
    put(record, 24, device);
    put(record, 28, std::uint32_t{1});
    put(record, 36, stream);
    run(record);
  } else if (is_recorded(10)) {
    const bool has_nodes = setting("captured_untraced") == 0;
    for (std::size_t at = 0; has_nodes && at < count; ++at) {
      const auto [start, end] = next_on_gpu(duration_ns);
      Bytes record = kernel_record(names[at], start, end, device, stream, id);
      put(record, 144, static_cast<std::uint64_t>(at + 1));
      put(record, 156, std::uint32_t{1});
      run_kernel(record);
    }
  }
  return id;
}

std::uint32_t fake_memcpy(std::uint64_t bytes, std::uint64_t duration_ns) {
  const std::uint32_t id = ++correlation;
  if (!is_recorded(1)) return id;
  const auto [start, end] = next_on_gpu(duration_ns);
  Bytes record = record_of(1);
  put(record, 4, std::uint8_t{1});
  put(record, 8, bytes);
  put(record, 16, start);
  put(record, 24, end);
  put(record, 44, id);
  run(record);
  return id;
}

std::uint32_t fake_call(std::uint32_t driver_call) {
  const std::uint32_t id = ++correlation;
  notify_subscriber(driver_call, id, 0);
  trace_call(driver_call, id);
  return id;
}

void fake_skip(std::uint32_t calls) { correlation += calls; }

static std::atomic<std::uint64_t> foreign_bytes{0};
static std::uint8_t foreign_buffer[65'536];

void fake_foreign_takeover(void) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().request = [](std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    *buffer = foreign_buffer;
    *size = sizeof(foreign_buffer);
    *max_records = 0;
  };
  fake().completed = [](void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t valid) {
    foreign_bytes += valid;
  };
}

std::uint64_t fake_foreign_bytes(void) { return foreign_bytes; }

int cuDriverGetVersion(int* number) {
  *number = 13'000;
  fake_call(2);
  return 0;
}

// --- CUPTI ---------------------------------------------------------------------------------------

int cuptiGetVersion(std::uint32_t* number) {
  *number = static_cast<std::uint32_t>(version());
  return outcome("cuptiGetVersion");
}

int cuptiGetResultString(int code, const char** words) {
  if (const int bad = outcome("cuptiGetResultString"); bad != 0) return bad;
  *words = code == 0 ? "CUPTI_SUCCESS" : "CUPTI_ERROR_FAKE";
  return 0;
}

int cuptiActivityRegisterCallbacks(Request request, Completed completed) {
  if (const int bad = outcome("cuptiActivityRegisterCallbacks"); bad != 0) return bad;
  if (request == nullptr || completed == nullptr) return 1;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().request = request;
  fake().completed = completed;
  return 0;
}

int cuptiActivityEnable(std::uint32_t kind) {
  if (const int bad = outcome("cuptiActivityEnable"); bad != 0) return bad;
  const bool is_graph = kind == 51;  // a version or a device may have all but these
  if (const int bad = is_graph ? outcome("cuptiActivityEnable(GRAPH_TRACE)") : 0; bad != 0) {
    return bad;
  }
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().kinds.insert(kind);
  if (kind == kDriverKind) fake().calls_off.clear();  // it enables every call
  return 0;
}

int cuptiActivityDisable(std::uint32_t kind) {
  if (const int bad = outcome("cuptiActivityDisable"); bad != 0) return bad;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().kinds.erase(kind);
  return 0;
}

int cuptiActivitySetAttribute(std::uint32_t, std::size_t*, void*) {
  return outcome("cuptiActivitySetAttribute");
}

int cuptiActivityFlushAll(std::uint32_t) {
  if (const int bad = outcome("cuptiActivityFlushAll"); bad != 0) return bad;
  Fake& it = fake();
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    if (it.completed == nullptr) return 7;
  }
  end_kernels(0);
  std::vector<Buffer> ready;
  {
    const std::lock_guard<std::mutex> lock(it.mutex);
    std::vector<Buffer> kept;
    for (Buffer& buffer : it.full) {
      if (buffer.waits > 0) --buffer.waits;
      (buffer.waits > 0 ? kept : ready).push_back(buffer);
    }
    it.full = std::move(kept);
    const bool is_held = !it.running.empty();  // a kernel that has not ended holds its buffer
    for (auto& [owner, buffer] : it.open) {
      const bool is_whole = buffer.bytes != nullptr && !is_held;
      if (is_whole) ready.push_back(std::exchange(buffer, Buffer()));
    }
  }
  for (const Buffer& buffer : ready) deliver(buffer);
  return 0;
}

int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  if (buffer == nullptr || record == nullptr) return 1;
  std::uint8_t* at = static_cast<std::uint8_t*>(*record);
  std::uint32_t kind = 0;
  if (at == nullptr) {
    at = buffer;
  } else {
    std::memcpy(&kind, at, sizeof(kind));
    at += bytes_of(kind);
  }
  const auto offset = static_cast<std::size_t>(at - buffer);
  if (offset >= valid) return 12;
  if (valid - offset < sizeof(kind)) return 21;
  std::memcpy(&kind, at, sizeof(kind));
  if (bytes_of(kind) == 0 || bytes_of(kind) > valid - offset) return 21;
  *record = at;
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  *dropped = std::exchange(fake().dropped, 0);
  return 0;
}

int cuptiSubscribe(void** subscriber, OnCall on_call, void* user) {
  if (const int bad = outcome("cuptiSubscribe"); bad != 0) return bad;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (fake().on_call != nullptr || setting("other_subscriber") != 0) return 39;
  fake().on_call = on_call;
  fake().user = user;
  *subscriber = &fake();
  return 0;
}

int cuptiUnsubscribe(void*) {
  if (const int bad = outcome("cuptiUnsubscribe"); bad != 0) return bad;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().on_call = nullptr;
  fake().callback_calls.clear();
  return 0;
}

int cuptiEnableCallback(std::uint32_t on, void*, std::uint32_t, std::uint32_t call) {
  if (const int bad = outcome("cuptiEnableCallback"); bad != 0) return bad;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (on != 0) fake().callback_calls.insert(call);
  if (on == 0) fake().callback_calls.erase(call);
  return 0;
}

int cuptiActivityPushExternalCorrelationId(std::uint32_t kind, std::uint64_t id) {
  external.emplace_back(kind, id);
  return 0;
}

int cuptiActivityPopExternalCorrelationId(std::uint32_t kind, std::uint64_t* id) {
  for (auto at = external.rbegin(); at != external.rend(); ++at) {
    if (at->first != kind) continue;
    if (id != nullptr) *id = at->second;
    external.erase(std::next(at).base());
    return 0;
  }
  return 18;
}

int cuptiActivityEnableDriverApi(std::uint32_t call, std::uint8_t on) {
  if (const int bad = outcome("cuptiActivityEnableDriverApi"); bad != 0) return bad;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (on == 0) fake().calls_off.insert(call);
  if (on != 0) fake().calls_off.erase(call);
  return 0;
}

int cuptiActivityRegisterTimestampCallback(std::uint64_t (*clock)()) {
  if (const int bad = outcome("cuptiActivityRegisterTimestampCallback"); bad != 0) return bad;
  if (clock == nullptr) return 1;
  fake().clock = clock;
  return 0;
}

int cuptiActivityEnableHWTrace(std::uint8_t) {
  const int bad = outcome("cuptiActivityEnableHWTrace");
  return bad != 0 ? bad : 15;
}

// Never to be called; tests check how often it was.
int cuptiFinalize(void) { return outcome("cuptiFinalize"); }
}
