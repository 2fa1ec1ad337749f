// Timers of the GPU, as other bindings need them. They outlive every object.
#pragma once

#include "module.hpp"

#include "otel_straggler/gpu_timer.hpp"

namespace otel_straggler::bindings {

// The timer behind a Python object of any kind of them; null with an exception set if it is none.
GpuTimer* gpu_timer_of(PyObject* object);

// Of each kind: null without an exception if the object is of another kind, null with one if it is
// a timer that cannot time.
GpuTimer* kernel_timer_of(PyObject* object);

}  // namespace otel_straggler::bindings
