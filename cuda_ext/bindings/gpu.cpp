// The GPU timer: set for the whole process, notified of every boundary. And
// otel_straggler._native.GpuStage, where the exporter in Python has its records wait for it.
#include "event_timing.hpp"
#include "recording.hpp"
#include "timing.hpp"

#include <cstring>
#include <exception>
#include <vector>

#include "otel_straggler/gpu_stage.hpp"

namespace otel_straggler::bindings {
namespace {

// Runs `work` without the GIL: a timer's lock may be held for a while.
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

PyObject* set_gpu_timer(PyObject* /*module*/, PyObject* given) {
  GpuTimer* timer = nullptr;
  if (given != Py_None && (timer = gpu_timer_of(given)) == nullptr) return nullptr;
  if (!run([&] { recording.gpu_timers->set(timer); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_gpu_complete(PyObject* /*module*/, PyObject* given) {
  const int is_complete = PyObject_IsTrue(given);
  if (is_complete < 0) return nullptr;
  recording.gpu_timers->set_complete(is_complete != 0);
  Py_RETURN_NONE;
}

// --- the stage -----------------------------------------------------------------------------------

struct StageObject {
  PyObject_HEAD
  GpuStage* stage;  // owned
};

GpuStage& stage_of(PyObject* self) { return *reinterpret_cast<StageObject*>(self)->stage; }

PyObject* new_stage(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  if (PyArg_ParseTuple(args, ":GpuStage") == 0) return nullptr;
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  GpuStage*& stage = reinterpret_cast<StageObject*>(self)->stage;
  if (run([&] { stage = new GpuStage(*recording.gpu_timers); })) return self;
  Py_DECREF(self);
  return nullptr;
}

void free_stage(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<StageObject*>(self)->stage;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* put(PyObject* self, PyObject* args) {
  const char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "y#", &bytes, &size) == 0) return nullptr;
  if (size % static_cast<Py_ssize_t>(sizeof(Record)) != 0) {
    PyErr_Format(PyExc_ValueError, "%zd bytes of records; expected a multiple of %zu", size,
                 sizeof(Record));
    return nullptr;
  }
  const bool is_put = run([&] {
    std::vector<Record> records(static_cast<std::size_t>(size) / sizeof(Record));
    if (size > 0) std::memcpy(records.data(), bytes, static_cast<std::size_t>(size));
    stage_of(self).put(records.data(), records.size());
  });
  if (!is_put) return nullptr;
  Py_RETURN_NONE;
}

PyObject* bytes_of(const std::vector<Record>& records) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(records.data()),
                                   static_cast<Py_ssize_t>(records.size() * sizeof(Record)));
}

PyObject* drain_ready(PyObject* self, PyObject* args) {
  long long now_ns = 0;
  std::vector<Record> records;
  if (PyArg_ParseTuple(args, "L", &now_ns) == 0 ||
      !run([&] { stage_of(self).drain_ready(now_ns, records); })) {
    return nullptr;
  }
  return bytes_of(records);
}

PyObject* drain_all(PyObject* self, PyObject* /*unused*/) {
  std::vector<Record> records;
  if (!run([&] { stage_of(self).drain_all(stage_of(self).is_complete(), records); })) {
    return nullptr;
  }
  return bytes_of(records);
}

PyObject* is_needed(PyObject* self, PyObject* /*unused*/) {
  return PyBool_FromLong(stage_of(self).is_needed());
}

PyObject* may_get_more(PyObject* self, PyObject* /*unused*/) {
  return PyBool_FromLong(stage_of(self).is_waiting() && !stage_of(self).is_complete());
}

PyObject* losses(PyObject* self, PyObject* /*unused*/) {
  GpuLosses now;
  if (!run([&] { now = stage_of(self).losses(); })) return nullptr;
  return Py_BuildValue("(KKKKK)", stage_of(self).missing(), now.dropped, now.invalid, now.lost,
                       now.late);
}

PyMethodDef methods[] = {
    {"put", put, METH_VARARGS, "put(records)"},
    {"take_ready", drain_ready, METH_VARARGS, "take_ready(now_ns) -> records"},
    {"take_all", drain_all, METH_NOARGS, "all that waits -> records"},
    {"is_needed", is_needed, METH_NOARGS, "whether the GPU has ever been timed"},
    {"may_get_more", may_get_more, METH_NOARGS, "whether waiting would bring numbers"},
    {"losses", losses, METH_NOARGS, "(missing, dropped, invalid, lost, late)"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_stage)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_stage)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"otel_straggler._native.GpuStage", sizeof(StageObject), 0, Py_TPFLAGS_DEFAULT,
                    slots};

PyMethodDef functions[] = {
    {"set_gpu_timer", set_gpu_timer, METH_O, "set_gpu_timer(timer or None)"},
    {"set_gpu_complete", set_gpu_complete, METH_O, "set_gpu_complete(is_complete)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

GpuTimer* gpu_timer_of(PyObject* object) {
  GpuTimer* timer = kernel_timer_of(object);
  if (timer == nullptr && PyErr_Occurred() == nullptr) timer = event_timer_of(object);
  if (timer == nullptr && PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_TypeError, "a timer of the GPU is a KernelTimer, an EventTimer, or None");
  }
  return timer;
}

bool add_gpu(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) != 0) return false;
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  const bool is_added = PyModule_AddObjectRef(module, "GpuStage", type) == 0;
  Py_DECREF(type);
  return is_added;
}

}  // namespace otel_straggler::bindings
