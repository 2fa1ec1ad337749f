// What other bindings need of the one of kernel timing.
#pragma once

#include "module.hpp"

#include "otel_straggler/cupti/collector.hpp"

namespace otel_straggler::bindings {

// kernel_timer: a KernelTimer. Null if there is no usable libcupti. It outlives every object.
cupti::Collector* collector_of(PyObject* kernel_timer);

}  // namespace otel_straggler::bindings
