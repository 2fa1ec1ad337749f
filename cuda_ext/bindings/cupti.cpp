// otel_straggler._native.KernelTimer: kernels timed by CUPTI, from Python. The exporter and the
// recorder use the collector behind it directly.
#include "event_timing.hpp"
#include "module.hpp"
#include "timing.hpp"

#include "otel_straggler/cupti/collector.hpp"

#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace otel_straggler::bindings {
namespace {

struct TimerObject {
  PyObject_HEAD
  cupti::Collector* collector;  // lives as long as the process; null: see reason
  std::string* reason;          // owned
  std::string* path;            // owned
  unsigned version;
  bool is_untried;
};

PyTypeObject* timer_type = nullptr;

TimerObject* timer(PyObject* self) { return reinterpret_cast<TimerObject*>(self); }

// Runs `work` without the GIL: CUPTI may wait for threads that want it.
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

bool has_collector(PyObject* self) {
  if (timer(self)->collector != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, timer(self)->reason->c_str());
  return false;
}

struct Given {
  cupti::LibraryRequest request;
  cupti::CollectorSettings settings;
};

bool read_given(PyObject* args, Given& given) {
  const char* path = nullptr;
  const char* folder = nullptr;
  const char* driver = nullptr;
  int prefers_launches = 0;
  int times_memory = 0;
  int times_whole_graphs = 0;
  if (PyArg_ParseTuple(args, "sssppp:KernelTimer", &path, &folder, &driver, &prefers_launches,
                       &times_memory, &times_whole_graphs) == 0) {
    return false;
  }
  given.request.path = path;
  given.request.folder = folder;
  if (*driver != 0) given.request.driver = driver;
  given.settings.prefers_launches = prefers_launches != 0;
  given.settings.times_memory = times_memory != 0;
  given.settings.times_whole_graphs = times_whole_graphs != 0;
  return true;
}

void fill(TimerObject& object, Given given) {
  cupti::Library library = cupti::load_library(given.request);
  object.path = new std::string(library.path);
  object.reason = new std::string(library.reason);
  object.version = library.version;
  object.is_untried = library.is_untried;
  if (!library.reason.empty()) return;
  object.collector = &cupti::Collector::make(std::move(library), given.settings);
}

PyObject* new_timer(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  try {
    Given given;
    if (!read_given(args, given)) return nullptr;
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* const self = allocate(type, 0);
    if (self == nullptr) return nullptr;
    if (run([&] { fill(*timer(self), std::move(given)); })) return self;
    Py_DECREF(self);
    return nullptr;
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

void free_timer(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete timer(self)->reason;
  delete timer(self)->path;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* start(PyObject* self, PyObject* args) {
  int is_known = 0;
  if (PyArg_ParseTuple(args, "|p", &is_known) == 0) return nullptr;
  std::string reason = *timer(self)->reason;
  cupti::Collector* const collector = timer(self)->collector;
  if (collector != nullptr && !run([&] { reason = collector->start(is_known != 0); })) {
    return nullptr;
  }
  return PyUnicode_FromStringAndSize(reason.data(), static_cast<Py_ssize_t>(reason.size()));
}

PyObject* stop(PyObject* self, PyObject* args) {
  long long deadline_ns = 0;
  if (PyArg_ParseTuple(args, "L", &deadline_ns) == 0 || !has_collector(self)) return nullptr;
  if (!run([&] { timer(self)->collector->stop(deadline_ns); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* start_thread(PyObject* self, PyObject* /*unused*/) {
  if (!has_collector(self) || !run([&] { timer(self)->collector->start_thread(); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* stop_thread(PyObject* self, PyObject* /*unused*/) {
  if (!has_collector(self) || !run([&] { timer(self)->collector->stop_thread(); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* flush(PyObject* self, PyObject* /*unused*/) {
  if (!has_collector(self) || !run([&] { timer(self)->collector->flush(); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_rate(PyObject* self, PyObject* args) {
  unsigned int steps = 0;
  unsigned int runs = 0;
  if (PyArg_ParseTuple(args, "II", &steps, &runs) == 0 || !has_collector(self)) return nullptr;
  if (!run([&] { timer(self)->collector->set_rate({steps, runs}); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_beneath(PyObject* self, PyObject* given) {
  if (!has_collector(self)) return nullptr;
  GpuTimer* const beneath = given == Py_None ? nullptr : event_timer_of(given);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (beneath == nullptr && given != Py_None) {
    PyErr_SetString(PyExc_TypeError, "what lies beneath a KernelTimer is an EventTimer, or None");
    return nullptr;
  }
  timer(self)->collector->set_beneath(beneath);
  Py_RETURN_NONE;
}

PyObject* take_next_way(PyObject* self, PyObject* /*unused*/) {
  if (!has_collector(self)) return nullptr;
  return PyBool_FromLong(timer(self)->collector->take_next_way());
}

PyObject* boundary(PyObject* self, PyObject* args) {
  int is_ambient = 0;
  unsigned long long span = 0;
  unsigned int section = 0;
  if (PyArg_ParseTuple(args, "pKI", &is_ambient, &span, &section) == 0 || !has_collector(self)) {
    return nullptr;
  }
  timer(self)->collector->boundary(is_ambient != 0, span, section);
  Py_RETURN_NONE;
}

PyObject* bytes_of(const std::vector<Record>& records) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(records.data()),
                                   static_cast<Py_ssize_t>(records.size() * sizeof(Record)));
}

PyObject* add(PyObject* self, PyObject* args) {
  const char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "y#", &bytes, &size) == 0 || !has_collector(self)) return nullptr;
  if (size % static_cast<Py_ssize_t>(sizeof(Record)) != 0) {
    PyErr_Format(PyExc_ValueError, "%zd bytes of records; expected a multiple of %zu", size,
                 sizeof(Record));
    return nullptr;
  }
  const bool is_added = run([&] {
    std::vector<Record> records(static_cast<std::size_t>(size) / sizeof(Record));
    if (size > 0) std::memcpy(records.data(), bytes, static_cast<std::size_t>(size));
    timer(self)->collector->add(records.data(), records.size());
  });
  if (!is_added) return nullptr;
  Py_RETURN_NONE;
}

PyObject* drain_ready(PyObject* self, PyObject* args) {
  long long now_ns = 0;
  if (PyArg_ParseTuple(args, "L", &now_ns) == 0 || !has_collector(self)) return nullptr;
  std::vector<Record> records;
  if (!run([&] { timer(self)->collector->drain_ready(now_ns, records); })) return nullptr;
  return bytes_of(records);
}

PyObject* drain_all(PyObject* self, PyObject* args) {
  int is_complete = 0;
  if (PyArg_ParseTuple(args, "p", &is_complete) == 0 || !has_collector(self)) return nullptr;
  std::vector<Record> records;
  if (!run([&] { timer(self)->collector->drain_all(is_complete != 0, records); })) return nullptr;
  return bytes_of(records);
}

// (name, class, section, count, sum, shortest, longest, scale, offset, buckets)
PyObject* tuple_of(const cupti::KernelSummary& kernel) {
  const cupti::KernelCell& cell = kernel.cell;
  const std::vector<std::uint32_t>& buckets = cell.histogram.buckets;
  PyObject* const name = PyUnicode_DecodeUTF8(
      kernel.name.data(), static_cast<Py_ssize_t>(kernel.name.size()), "replace");
  if (name == nullptr) return nullptr;
  return Py_BuildValue("(NiIKKKKiiy#)", name, static_cast<int>(kernel.kernel_class), cell.section,
                       cell.count, cell.sum_ns, cell.count == 0 ? 0 : cell.min_ns, cell.max_ns,
                       cell.histogram.scale, cell.histogram.offset,
                       reinterpret_cast<const char*>(buckets.data()),
                       static_cast<Py_ssize_t>(buckets.size() * sizeof(buckets[0])));
}

PyObject* drain_kernels(PyObject* self, PyObject* /*unused*/) {
  std::vector<cupti::KernelSummary> kernels;
  if (!has_collector(self) || !run([&] { kernels = timer(self)->collector->drain_kernels(); })) {
    return nullptr;
  }
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(kernels.size()));
  for (std::size_t at = 0; list != nullptr && at < kernels.size(); ++at) {
    PyObject* const item = tuple_of(kernels[at]);
    if (item == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(at), item) != 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

struct Count {
  const char* name;
  std::uint64_t value;
};

PyObject* dict_of(const std::vector<Count>& counts) {
  PyObject* dict = PyDict_New();
  for (const Count& count : counts) {
    PyObject* const value = dict == nullptr ? nullptr : PyLong_FromUnsignedLongLong(count.value);
    if (value == nullptr || PyDict_SetItemString(dict, count.name, value) != 0) Py_CLEAR(dict);
    Py_XDECREF(value);
  }
  return dict;
}

PyObject* state(PyObject* self, PyObject* /*unused*/) {
  if (!has_collector(self)) return nullptr;
  cupti::CollectorState now;
  if (!run([&] { now = timer(self)->collector->state(); })) return nullptr;
  return dict_of({{"is_tracing", now.is_tracing},
                  {"by_launches", now.way == cupti::Way::kLaunches},
                  {"by_callbacks", now.way == cupti::Way::kCallbacks},
                  {"is_proven", now.proof == cupti::ProofState::kProven},
                  {"has_failed", now.proof == cupti::ProofState::kFailed},
                  {"windows", now.windows},
                  {"events", now.counts.events},
                  {"attributed", now.counts.attributed},
                  {"invalid", now.counts.invalid},
                  {"early", now.counts.early},
                  {"outside", now.counts.outside},
                  {"lost", now.counts.lost},
                  {"late", now.counts.late},
                  {"dropped", now.counts.dropped},
                  {"timed_runs", now.counts.timed_runs},
                  {"missing_runs", now.counts.missing_runs},
                  {"foreign_buffers", now.foreign_buffers},
                  {"garbage_buffers", now.garbage_buffers},
                  {"declined_buffers", now.declined_buffers},
                  {"boundaries_elsewhere", now.boundaries_elsewhere},
                  {"marks_lost", now.marks_lost},
                  {"silent_flushes", now.silent_flushes},
                  {"buffers_out", now.buffers_out},
                  {"kernel_names", now.kernel_names},
                  {"cells", now.cells},
                  {"cell_bytes", now.cell_bytes},
                  {"is_invalid_too_often", now.is_invalid_too_often}});
}

PyObject* library(PyObject* self, PyObject* /*unused*/) {
  const TimerObject& it = *timer(self);
  return Py_BuildValue("(sIi)", it.path->c_str(), it.version, it.is_untried ? 1 : 0);
}

PyMethodDef methods[] = {
    {"library", library, METH_NOARGS, "(path, version, 1 if it is newer than all that were tried)"},
    {"start", start, METH_VARARGS, "start(is_known=False): why kernels are not timed; empty: they are"},
    {"stop", stop, METH_VARARGS, "stop(deadline_ns)"},
    {"start_thread", start_thread, METH_NOARGS, nullptr},
    {"stop_thread", stop_thread, METH_NOARGS, nullptr},
    {"flush", flush, METH_NOARGS, nullptr},
    {"set_rate", set_rate, METH_VARARGS, "set_rate(steps, runs): kernel records in one of so many"},
    {"set_beneath", set_beneath, METH_O, "set_beneath(event_timer or None)"},
    {"take_next_way", take_next_way, METH_NOARGS, "once stopped; False: there is no other way"},
    {"boundary", boundary, METH_VARARGS, "boundary(is_ambient, span, section)"},
    {"add", add, METH_VARARGS, "add(records)"},
    {"take_ready", drain_ready, METH_VARARGS, "take_ready(now_ns) -> records"},
    {"take_all", drain_all, METH_VARARGS, "take_all(is_complete) -> records"},
    {"take_kernels", drain_kernels, METH_NOARGS, "what was seen of each kernel since last time"},
    {"state", state, METH_NOARGS, "counts by name"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_timer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_timer)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"otel_straggler._native.KernelTimer", sizeof(TimerObject), 0,
                    Py_TPFLAGS_DEFAULT, slots};

// The class of a kernel by its name, as in model/observation.py.
PyObject* kernel_class_of(PyObject* /*module*/, PyObject* args) {
  const char* name = nullptr;
  if (PyArg_ParseTuple(args, "s", &name) == 0) return nullptr;
  try {
    cupti::KernelNames names;
    return PyLong_FromLong(static_cast<long>(names.class_of(names.number_of(name))));
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyMethodDef functions[] = {
    {"kernel_class_of", kernel_class_of, METH_VARARGS, "kernel_class_of(name) -> number"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

GpuTimer* kernel_timer_of(PyObject* object) {
  const bool is_one = PyObject_TypeCheck(object, timer_type) != 0;
  return is_one && has_collector(object) ? timer(object)->collector : nullptr;
}

bool add_cupti(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) != 0) return false;
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  timer_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "KernelTimer", type) == 0;
}

}  // namespace otel_straggler::bindings
