// The extension module otel_straggler._native. Bindings turn Python's objects into values of C++
// and back; what they call lives in include/.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace otel_straggler::bindings {

// Each adds its functions and types to the module; false with an exception set if that fails.
bool add_record(PyObject* module);
bool add_ring(PyObject* module);
bool add_section_timer(PyObject* module);
bool add_detection_section(PyObject* module);
bool add_scan(PyObject* module);
bool add_scan_metrics(PyObject* module);
bool add_encode(PyObject* module);
bool add_exporter(PyObject* module);
bool add_cupti(PyObject* module);
bool add_events(PyObject* module);
bool add_gpu(PyObject* module);

}  // namespace otel_straggler::bindings
