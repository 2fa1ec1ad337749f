// Who times the GPU: set for the whole process, told of every boundary.
#include "recording.hpp"
#include "timing.hpp"

#include <exception>

namespace otel_straggler::bindings {
namespace {

PyObject* set_gpu_timer(PyObject* /*module*/, PyObject* given) {
  GpuTimer* timer = nullptr;
  if (given != Py_None && (timer = gpu_timer_of(given)) == nullptr) return nullptr;
  bool is_set = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    recording.gpu_timers->set(timer);
  } catch (const std::exception&) {
    is_set = false;
  }
  Py_END_ALLOW_THREADS
  if (!is_set) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"set_gpu_timer", set_gpu_timer, METH_O, "set_gpu_timer(timer or None)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

GpuTimer* gpu_timer_of(PyObject* object) {
  GpuTimer* timer = kernel_timer_of(object);
  if (timer == nullptr && PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_TypeError, "a timer of the GPU is a KernelTimer, or None");
  }
  return timer;
}

bool add_gpu(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace otel_straggler::bindings
