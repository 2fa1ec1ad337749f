// otel_straggler._native.EventTimer: sections timed by CUDA events, from Python. The recorder and
// the exporter use the timer behind it directly.
//
// What a boundary asks of Python, besides the driver's own calls: which stream is current (a call
// of a function of torch's, about 50 ns), and to let other threads go on while the driver may wait
// (about 40 ns): a GPU that hangs fills its queue, and a thread that records an event then waits
// for it. With the GIL held, nothing could report the hang.
#include "event_timing.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "otel_straggler/events/event_timer.hpp"

namespace otel_straggler::bindings {
namespace {

constexpr int kDevicesKnown = 64;
constexpr std::int64_t kLastWaitNs = kSecondNs / 5;

struct TimerObject {
  PyObject_HEAD
  events::EventTimer* timer;  // lives as long as the process; null: see reason
  std::string* reason;        // owned
};

// The function that returns the current stream; kept as long as the process.
struct Torch {
  PyObject* current_stream;
  PyObject* devices[kDevicesKnown];  // their numbers as objects
};

PyTypeObject* event_timer_type = nullptr;

TimerObject* object(PyObject* self) { return reinterpret_cast<TimerObject*>(self); }

// Runs `work` without the GIL: the driver may wait for threads that want it.
template <typename Work>
bool run(Work&& work) {
  bool is_done = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    work();
  } catch (const std::exception&) {
    is_done = false;
  }
  Py_END_ALLOW_THREADS
  if (!is_done) PyErr_NoMemory();
  return is_done;
}

// --- the program around a boundary ---------------------------------------------------------------

bool current_stream(void* user, int device, events::Stream& stream) noexcept {
  const Torch& torch = *static_cast<Torch*>(user);
  const bool can_ask = device >= 0 && device < kDevicesKnown && PyErr_Occurred() == nullptr;
  if (!can_ask) return false;
  PyObject* const answer =
      PyObject_CallFunctionObjArgs(torch.current_stream, torch.devices[device], nullptr);
  const unsigned long long handle = answer == nullptr ? 0 : PyLong_AsUnsignedLongLong(answer);
  Py_XDECREF(answer);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  stream = reinterpret_cast<events::Stream>(static_cast<std::uintptr_t>(handle));
  return true;
}

// At the end of the interpreter, a thread that asks for the GIL is ended, up to Python 3.13; from
// within C++ that ends the process. So from then on no thread releases it, and one that has done so
// before and is still in the driver, because the GPU hangs, stays here.
std::atomic<bool> is_ending{false};  // set with the GIL
std::atomic<bool> is_over{false};    // waiting for threads has ended

void* release_lock(void* /*user*/) noexcept {
  return is_ending.load(std::memory_order_relaxed) ? nullptr : PyEval_SaveThread();
}

void reacquire_lock(void* /*user*/, void* token) noexcept {
  if (token == nullptr) return;
  while (is_over.load()) ::pause();  // signals are for other threads
  PyEval_RestoreThread(static_cast<PyThreadState*>(token));
}

// --- the object ----------------------------------------------------------------------------------

bool has_timer(PyObject* self) {
  if (object(self)->timer != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, object(self)->reason->c_str());
  return false;
}

// Null with an exception set if there is no memory.
Torch* make_torch(PyObject* current_stream) {
  auto* const torch = new Torch{current_stream, {}};
  for (int device = 0; device < kDevicesKnown; ++device) {
    torch->devices[device] = PyLong_FromLong(device);
    if (torch->devices[device] == nullptr) return nullptr;
  }
  Py_INCREF(current_stream);
  return torch;
}

bool fill(TimerObject& self, const char* path, PyObject* asked, events::EventSettings settings) {
  events::Host host;
  host.release_lock = release_lock;
  host.reacquire_lock = reacquire_lock;
  if (asked != Py_None) {
    host.current_stream = current_stream;
    host.user = make_torch(asked);
    if (host.user == nullptr) return false;
  }
  return run([&] {
    const events::Driver driver = events::load_driver(path);
    self.reason = new std::string(driver.reason);
    if (driver.reason.empty()) self.timer = &events::EventTimer::make(driver, host, settings);
  });
}

// Has the interpreter call end() before it ends. False with an exception set.
bool end_at_exit(PyObject* self) {
  PyObject* const module = PyImport_ImportModule("atexit");
  PyObject* const end = module == nullptr ? nullptr : PyObject_GetAttrString(self, "end");
  PyObject* const done =
      end == nullptr ? nullptr : PyObject_CallMethod(module, "register", "O", end);
  Py_XDECREF(done);
  Py_XDECREF(end);
  Py_XDECREF(module);
  return done != nullptr;
}

PyObject* new_timer(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  const char* path = nullptr;
  PyObject* asked = nullptr;
  events::EventSettings settings;
  if (PyArg_ParseTuple(args, "sOi|I:EventTimer", &path, &asked, &settings.device,
                       &settings.max_pairs) == 0) {
    return nullptr;
  }
  if (asked != Py_None && PyCallable_Check(asked) == 0) {
    PyErr_SetString(PyExc_TypeError, "current_stream: expected a function of the device's number, "
                                     "or None");
    return nullptr;
  }
  if (settings.max_pairs < 1 || settings.max_pairs > settings.max_pairs_in_all) {
    PyErr_Format(PyExc_ValueError, "max_pairs: %u; expected 1 to %u", settings.max_pairs,
                 settings.max_pairs_in_all);
    return nullptr;
  }
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  const bool is_filled = fill(*object(self), path, asked, settings);
  if (is_filled && (object(self)->timer == nullptr || end_at_exit(self))) return self;
  Py_DECREF(self);
  return nullptr;
}

void free_timer(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete object(self)->reason;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* text_of(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* start(PyObject* self, PyObject* /*unused*/) {
  std::string reason = *object(self)->reason;
  events::EventTimer* const timer = object(self)->timer;
  if (timer != nullptr && !run([&] { reason = timer->start(); })) return nullptr;
  return text_of(reason);
}

PyObject* why_ended(PyObject* self, PyObject* /*unused*/) {
  std::string reason = *object(self)->reason;
  events::EventTimer* const timer = object(self)->timer;
  if (timer != nullptr && !run([&] { reason = timer->reason(); })) return nullptr;
  return text_of(reason);
}

PyObject* stop(PyObject* self, PyObject* args) {
  long long deadline_ns = 0;
  if (PyArg_ParseTuple(args, "L", &deadline_ns) == 0 || !has_timer(self)) return nullptr;
  if (!run([&] { object(self)->timer->stop(deadline_ns); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* end(PyObject* self, PyObject* /*unused*/) {
  if (!has_timer(self)) return nullptr;
  is_ending.store(true);
  object(self)->timer->turn_off();  // with the GIL: other threads are not in between
  const bool is_done = run([&] {
    object(self)->timer->wait_for_threads(monotonic_ns() + kLastWaitNs);
  });
  is_over.store(true);
  if (!is_done) return nullptr;
  Py_RETURN_NONE;
}

PyObject* begun(PyObject* self, PyObject* args) {
  unsigned long long span = 0;
  if (PyArg_ParseTuple(args, "K", &span) == 0 || !has_timer(self)) return nullptr;
  object(self)->timer->begun(true, span, kNoSection);
  Py_RETURN_NONE;
}

PyObject* ended(PyObject* self, PyObject* args) {
  unsigned long long span = 0;
  if (PyArg_ParseTuple(args, "K", &span) == 0 || !has_timer(self)) return nullptr;
  object(self)->timer->ended(true, span, kNoSpan, kNoSection);
  Py_RETURN_NONE;
}

PyObject* bytes_of(const std::vector<Record>& records) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(records.data()),
                                   static_cast<Py_ssize_t>(records.size() * sizeof(Record)));
}

PyObject* add(PyObject* self, PyObject* args) {
  const char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "y#", &bytes, &size) == 0 || !has_timer(self)) return nullptr;
  if (size % static_cast<Py_ssize_t>(sizeof(Record)) != 0) {
    PyErr_Format(PyExc_ValueError, "%zd bytes of records; expected a multiple of %zu", size,
                 sizeof(Record));
    return nullptr;
  }
  const bool is_added = run([&] {
    std::vector<Record> records(static_cast<std::size_t>(size) / sizeof(Record));
    if (size > 0) std::memcpy(records.data(), bytes, static_cast<std::size_t>(size));
    object(self)->timer->add(records.data(), records.size());
  });
  if (!is_added) return nullptr;
  Py_RETURN_NONE;
}

PyObject* drain_ready(PyObject* self, PyObject* args) {
  long long now_ns = 0;
  if (PyArg_ParseTuple(args, "L", &now_ns) == 0 || !has_timer(self)) return nullptr;
  std::vector<Record> records;
  if (!run([&] { object(self)->timer->drain_ready(now_ns, records); })) return nullptr;
  return bytes_of(records);
}

PyObject* drain_all(PyObject* self, PyObject* args) {
  int is_complete = 0;
  if (PyArg_ParseTuple(args, "p", &is_complete) == 0 || !has_timer(self)) return nullptr;
  std::vector<Record> records;
  if (!run([&] { object(self)->timer->drain_all(is_complete != 0, records); })) return nullptr;
  return bytes_of(records);
}

bool put(PyObject* dict, const char* name, std::uint64_t count) {
  PyObject* const value = PyLong_FromUnsignedLongLong(count);
  const bool is_put = value != nullptr && PyDict_SetItemString(dict, name, value) == 0;
  Py_XDECREF(value);
  return is_put;
}

PyObject* state(PyObject* self, PyObject* /*unused*/) {
  if (!has_timer(self)) return nullptr;
  events::EventTimerState now;
  if (!run([&] { now = object(self)->timer->state(); })) return nullptr;
  const auto count = [&](events::Outcome outcome) {
    return now.runs.by_outcome[static_cast<std::size_t>(outcome)];
  };
  PyObject* dict = PyDict_New();
  const bool is_whole =
      dict != nullptr && put(dict, "is_on", now.is_on) &&
      put(dict, "error", static_cast<std::uint64_t>(now.failure.code)) &&
      put(dict, "timed_runs", now.runs.timed) && put(dict, "missing_runs", now.runs.missing) &&
      put(dict, "without_context", count(events::Outcome::kNoContext)) &&
      put(dict, "other_device", count(events::Outcome::kElsewhere)) &&
      put(dict, "capturing", count(events::Outcome::kCapturing)) &&
      put(dict, "moved", count(events::Outcome::kMoved)) &&
      put(dict, "overruns", count(events::Outcome::kOverrun)) &&
      put(dict, "stream_unknown", count(events::Outcome::kNoStream)) &&
      put(dict, "refused", count(events::Outcome::kRefused)) &&
      put(dict, "late", count(events::Outcome::kLate)) &&
      put(dict, "untold", count(events::Outcome::kUnreported)) &&
      put(dict, "threads_left_out", now.threads_left_out) &&
      put(dict, "pairs_made", now.pairs_made) && put(dict, "pending", now.pending) &&
      put(dict, "waiting", now.waiting);
  if (!is_whole) Py_CLEAR(dict);
  return dict;
}

PyMethodDef methods[] = {
    {"start", start, METH_NOARGS, "why sections are not timed; empty: they are"},
    {"stop", stop, METH_VARARGS, "stop(deadline_ns)"},
    {"end", end, METH_NOARGS, "at the end of the interpreter"},
    {"reason", why_ended, METH_NOARGS, "why timing has ended by itself; empty: it has not"},
    {"begun", begun, METH_VARARGS, "begun(span)"},
    {"ended", ended, METH_VARARGS, "ended(span)"},
    {"add", add, METH_VARARGS, "add(records)"},
    {"take_ready", drain_ready, METH_VARARGS, "take_ready(now_ns) -> records"},
    {"take_all", drain_all, METH_VARARGS, "take_all(is_complete) -> records"},
    {"state", state, METH_NOARGS, "counts by name"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_timer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_timer)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"otel_straggler._native.EventTimer", sizeof(TimerObject), 0,
                    Py_TPFLAGS_DEFAULT, slots};

}  // namespace

GpuTimer* event_timer_of(PyObject* given) {
  const bool is_ours = PyObject_TypeCheck(given, event_timer_type) != 0;
  return is_ours && has_timer(given) ? object(given)->timer : nullptr;
}

bool add_events(PyObject* module) {
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  event_timer_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "EventTimer", type) == 0;
}

}  // namespace otel_straggler::bindings
