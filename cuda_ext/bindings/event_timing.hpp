// What other bindings need of the one of timing by events.
#pragma once

#include "module.hpp"

#include "otel_straggler/gpu_timer.hpp"

namespace otel_straggler::bindings {

// The timer behind an EventTimer; it outlives every object. Null without an exception if the object
// is none of ours, null with one if there is no usable CUDA driver.
GpuTimer* event_timer_of(PyObject* object);

}  // namespace otel_straggler::bindings
