#include "module.hpp"

namespace {

using AddPart = bool (*)(PyObject*);

constexpr AddPart kParts[] = {
    otel_straggler::bindings::add_record,
    otel_straggler::bindings::add_ring,
    otel_straggler::bindings::add_section_timer,
    otel_straggler::bindings::add_detection_section,
    otel_straggler::bindings::add_scan,
    otel_straggler::bindings::add_scan_metrics,
    otel_straggler::bindings::add_encode,
    otel_straggler::bindings::add_exporter,
    otel_straggler::bindings::add_cupti,
    otel_straggler::bindings::add_events,
    otel_straggler::bindings::add_gpu,
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "otel_straggler._native",
    "Recording, exporting and scanning in C++. Private: use the package's Python modules.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) return nullptr;
  for (const AddPart add : kParts) {
    if (!add(module)) {
      Py_DECREF(module);
      return nullptr;
    }
  }
  return module;
}
