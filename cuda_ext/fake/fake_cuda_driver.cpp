// A CUDA driver without a GPU, for tests: the functions that timing by events uses, and those that
// it must not use.
//
// It is as strict as the documentation allows a driver to be: an event is made, asked about and
// compared with a context current in the thread; event and stream must be of one context; to ask
// about an event while a graph is captured invalidates the capture, unless the thread's mode allows
// it. Where each behaviour is documented, and what is only believed: README.md in this folder. Built
// as libfake_cuda.so.1, never shipped.
#include "fake_cuda_driver.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <pthread.h>
#include <unistd.h>

namespace {

constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kNotReady = 600;
constexpr int kDestroyed = 709;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureImplicit = 906;
constexpr int kCaptured = 907;

struct Context;

struct Stream {
  Context* context = nullptr;
  bool is_blocking = false;
  bool is_capturing = false;
  bool is_invalidated = false;  // its capture, until that has ended
  bool is_gone = false;
  ::pthread_t capturer{};  // the thread that has begun it
  std::uint64_t free_ns = 0;  // when it has done all that it was given
};

struct Context {
  int device = 0;
  bool is_gone = false;
  Stream legacy;
};

struct Event {
  Context* context = nullptr;
  bool is_recorded = false;
  bool is_captured = false;
  std::uint64_t at_ns = 0;
  std::uint64_t queries = 0;
};

struct Fake {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, int> failures;
  std::map<std::string, std::uint64_t> counts;
  std::map<std::string, std::uint64_t> settings;
  std::vector<Stream*> streams;  // never freed: late calls must find them
  std::uint64_t now_ns = 1'000;
  int broken = 0;
  ::pid_t pid = 0;
};

Fake& fake() {
  static Fake* const one = new Fake();  // outlives every thread
  return *one;
}

std::atomic<int (*)(int*)> traced_version{nullptr};
thread_local std::vector<Context*> contexts;  // of this thread, the current one last
constexpr int kGlobal = 0;
constexpr int kThreadLocal = 1;
thread_local int capture_mode = kGlobal;  // as a thread has it at first

Context* current() { return contexts.empty() ? nullptr : contexts.back(); }

// Of a call: counted, and how it ends unless it goes well. The mutex is held.
int outcome(const char* function, bool is_about_gpu = true) {
  Fake& it = fake();
  ++it.counts[function];
  if (it.pid != ::getpid()) ++it.counts["in_child"];
  if (it.broken != 0 && is_about_gpu) return it.broken;
  const auto found = it.failures.find(function);
  return found == it.failures.end() ? 0 : found->second;
}

std::vector<Stream*> capturing() {
  std::vector<Stream*> found;
  for (Stream* stream : fake().streams) {
    if (stream->is_capturing) found.push_back(stream);
  }
  return found;
}

// Captures that the legacy stream of this context would be a part of.
std::vector<Stream*> captures_of_blocking(const Context* context) {
  std::vector<Stream*> found;
  for (Stream* stream : capturing()) {
    if (stream->context == context && stream->is_blocking) found.push_back(stream);
  }
  return found;
}

void invalidate(const std::vector<Stream*>& hurt) {
  for (Stream* stream : hurt) stream->is_invalidated = true;
  ++fake().counts["spoiled"];
}

// What a capture forbids this thread, and invalidates it. All are begun in global mode, as torch
// begins them: in global mode a thread is in the way of all, in thread-local mode of its own.
bool spoils() {
  std::vector<Stream*> hurt;
  for (Stream* stream : capturing()) {
    const bool is_own = ::pthread_equal(stream->capturer, ::pthread_self()) != 0;
    if (capture_mode == kGlobal || (capture_mode == kThreadLocal && is_own)) hurt.push_back(stream);
  }
  if (hurt.empty()) return false;
  invalidate(hurt);
  return true;
}

bool is_busy() { return fake().settings["busy"] != 0; }

Stream* stream_of(void* handle) {
  if (handle != nullptr) return static_cast<Stream*>(handle);
  return current() == nullptr ? nullptr : &current()->legacy;
}

std::uint64_t when_free(const Stream& stream) {
  return is_busy() ? stream.free_ns : std::max(stream.free_ns, fake().now_ns);
}

bool is_done(const Event& event) { return is_busy() || event.at_ns <= fake().now_ns; }

int check(const Context* context) {
  if (current() == nullptr) return kInvalidContext;
  if (context->is_gone) return kDestroyed;
  return 0;
}

}  // namespace

extern "C" {

void fake_cuda_reset(void) {
  Fake& it = fake();
  const std::lock_guard<std::mutex> lock(it.mutex);
  it.failures.clear();
  it.counts.clear();
  it.settings.clear();
  for (Stream* stream : it.streams) stream->is_capturing = stream->is_invalidated = false;
  it.now_ns = 1'000;
  it.broken = 0;
  it.pid = ::getpid();
  contexts.clear();
  capture_mode = kGlobal;
}

__attribute__((constructor)) static void begin(void) {
  fake_cuda_reset();
  const auto lock = [] { fake().mutex.lock(); };  // a child asks how often it was called
  const auto unlock = [] { fake().mutex.unlock(); };
  ::pthread_atfork(lock, unlock, unlock);
}

void* fake_cuda_context(int device) {
  auto* const made = new Context();
  made->device = device;
  made->legacy.context = made;
  return made;
}

void fake_cuda_set_current(void* context) {
  contexts.clear();
  if (context != nullptr) contexts.push_back(static_cast<Context*>(context));
}

void fake_cuda_destroy(void* context) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  static_cast<Context*>(context)->is_gone = true;
}

void* fake_cuda_stream(void* context, int is_blocking) {
  auto* const made = new Stream();
  made->context = static_cast<Context*>(context);
  made->is_blocking = is_blocking != 0;
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().streams.push_back(made);
  return made;
}

void fake_cuda_destroy_stream(void* stream) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  static_cast<Stream*>(stream)->is_gone = true;
}

void fake_cuda_launch(void* handle, std::uint64_t duration_ns) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return;  // a thread that uses no GPU
  stream->free_ns = when_free(*stream) + duration_ns;
}

void fake_cuda_advance(std::uint64_t ns) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().now_ns += ns;
}

void fake_cuda_capture(void* handle, int on) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  auto* const stream = static_cast<Stream*>(handle);
  stream->is_capturing = on != 0;
  stream->is_invalidated = false;
  stream->capturer = ::pthread_self();
}

void fake_cuda_fail(const char* function, int code) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().failures[function] = code;
  if (code == 0) fake().failures.erase(function);
}

void fake_cuda_trace_version(int (*traced)(int*)) { traced_version = traced; }

void fake_cuda_break(int code) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().broken = code;
}

void fake_cuda_set(const char* setting, std::uint64_t value) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  fake().settings[setting] = value;
  fake().changed.notify_all();
}

std::uint64_t fake_cuda_get(const char* count) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  return fake().counts[count];
}

// --- the driver ----------------------------------------------------------------------------------

int cuDriverGetVersion(int* version) {
  if (auto* const traced = traced_version.load(); traced != nullptr) return traced(version);
  const std::lock_guard<std::mutex> lock(fake().mutex);
  *version = 13'000;
  return outcome("cuDriverGetVersion", false);
}

int cuCtxGetCurrent(void** context) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  *context = current();
  return outcome("cuCtxGetCurrent", false);
}

int cuCtxGetDevice(int* device) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuCtxGetDevice", false); bad != 0) return bad;
  if (current() == nullptr) return kInvalidContext;
  *device = current()->device;
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuCtxPushCurrent", false); bad != 0) return bad;
  if (static_cast<Context*>(context)->is_gone) return kInvalidContext;
  contexts.push_back(static_cast<Context*>(context));
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuCtxPopCurrent", false); bad != 0) return bad;
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}

int cuEventCreate(void** event, unsigned flags) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuEventCreate"); bad != 0) return bad;
  if (current() == nullptr) return kInvalidContext;
  if (flags != 0) return 1;
  auto* const made = new Event();
  made->context = current();
  ++fake().counts["events"];
  *event = made;
  return 0;
}

int cuEventRecord(void* handle, void* stream_handle) {
  Fake& it = fake();
  std::unique_lock<std::mutex> lock(it.mutex);
  ++it.counts["inside"];
  it.changed.wait(lock, [&] { return it.settings["full"] == 0; });
  --it.counts["inside"];
  if (const int bad = outcome("cuEventRecord"); bad != 0) return bad;
  auto* const event = static_cast<Event*>(handle);
  Stream* const stream = stream_of(stream_handle);
  if (stream == nullptr) return kInvalidContext;
  if (event->context->is_gone) return kDestroyed;
  if (stream->is_gone || stream->context != event->context) return kInvalidHandle;
  if (stream == &stream->context->legacy) {
    const std::vector<Stream*> hurt = captures_of_blocking(stream->context);
    if (!hurt.empty()) invalidate(hurt);
    if (!hurt.empty()) return kCaptureImplicit;
  }
  if (stream->is_invalidated) return kCaptureInvalidated;
  event->is_captured = stream->is_capturing;
  if (event->is_captured) ++it.counts["captured"];
  event->is_recorded = true;
  event->at_ns = when_free(*stream);
  event->queries = 0;
  return 0;
}

int cuEventQuery(void* handle) {
  Fake& it = fake();
  const std::lock_guard<std::mutex> lock(it.mutex);
  if (const int bad = outcome("cuEventQuery"); bad != 0) return bad;
  auto* const event = static_cast<Event*>(handle);
  if (const int bad = check(event->context); bad != 0) return bad;
  if (spoils()) return kCaptureUnsupported;
  if (event->is_captured) return kCaptured;
  if (event->is_recorded && !is_done(*event)) return kNotReady;
  return event->queries++ < it.settings["not_ready"] ? kNotReady : 0;
}

int cuEventElapsedTime(float* ms, void* begin, void* end) {
  Fake& it = fake();
  const std::lock_guard<std::mutex> lock(it.mutex);
  if (const int bad = outcome("cuEventElapsedTime"); bad != 0) return bad;
  const auto* const from = static_cast<Event*>(begin);
  const auto* const to = static_cast<Event*>(end);
  if (const int bad = check(from->context); bad != 0) return bad;
  if (from->context != to->context || current() != from->context) return kInvalidHandle;
  if (from->is_captured || to->is_captured) return kCaptured;
  if (!from->is_recorded || !to->is_recorded) return kInvalidHandle;
  if (!is_done(*from) || !is_done(*to)) return kNotReady;
  const double ns = static_cast<double>(to->at_ns) - static_cast<double>(from->at_ns);
  *ms = static_cast<float>((it.settings["backward"] != 0 ? -1 : 1) * ns / 1e6);
  return 0;
}

int cuStreamIsCapturing(void* handle, int* status) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuStreamIsCapturing"); bad != 0) return bad;
  Stream* const stream = stream_of(handle);
  if (stream == nullptr) return kInvalidContext;
  if (stream->is_gone) return kInvalidHandle;
  if (stream == &stream->context->legacy && !captures_of_blocking(stream->context).empty()) {
    return kCaptureImplicit;
  }
  *status = !stream->is_capturing ? 0 : (stream->is_invalidated ? 2 : 1);
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  if (const int bad = outcome("cuThreadExchangeStreamCaptureMode", false); bad != 0) return bad;
  std::swap(*mode, capture_mode);
  return 0;
}

// --- never to be called; tests check how often they were ----------------------------------------

static int never(const char* function) {
  const std::lock_guard<std::mutex> lock(fake().mutex);
  ++fake().counts["never"];
  return outcome(function);
}

int cuInit(unsigned) { return never("cuInit"); }
int cuDevicePrimaryCtxRetain(void**, int) { return never("cuDevicePrimaryCtxRetain"); }
int cuCtxCreate_v2(void**, unsigned, int) { return never("cuCtxCreate"); }
int cuCtxSynchronize(void) { return never("cuCtxSynchronize"); }
int cuEventSynchronize(void*) { return never("cuEventSynchronize"); }
int cuStreamSynchronize(void*) { return never("cuStreamSynchronize"); }
}
