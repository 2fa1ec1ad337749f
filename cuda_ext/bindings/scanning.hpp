// What the bindings of the two scanners share.
#pragma once

#include "module.hpp"

#include <new>
#include <vector>

#include "otel_straggler/cases.hpp"

namespace otel_straggler::bindings {

// What takes no longer than handing over the GIL is done with it.
inline constexpr Py_ssize_t kSmallRequest = 8192;

// Scans the bytes object `body` into `found`; false with an exception set if that fails.
template <typename Scanner, typename Columns>
bool scan_body(Scanner& scanner, PyObject* body, Columns& found, Verdict& verdict) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(body, &data, &size) < 0) return false;
  const Bytes request{reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size)};
  const auto scan = [&] {
    try {
      verdict = scanner.scan(request, found);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  bool is_done = false;
  if (size < kSmallRequest) {
    is_done = scan();
  } else {
    Py_BEGIN_ALLOW_THREADS
    is_done = scan();
    Py_END_ALLOW_THREADS
  }
  if (!is_done) PyErr_NoMemory();
  return is_done;
}

// A list of what `build` makes of each item: a new reference, or null with an exception set.
template <typename Item, typename Build>
PyObject* list_of(const std::vector<Item>& items, Build build) {
  PyObject* list = PyList_New(0);
  for (const Item& item : items) {
    PyObject* built = list == nullptr ? nullptr : build(item);
    const bool is_added = built != nullptr && PyList_Append(list, built) == 0;
    Py_XDECREF(built);
    if (!is_added) {
      Py_XDECREF(list);
      return nullptr;
    }
  }
  return list;
}

template <typename Number>
PyObject* column(const std::vector<Number>& values) {
  const auto size = static_cast<Py_ssize_t>(values.size() * sizeof(Number));
  return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(values.data()), size);
}

template <typename Question>
PyObject* question_of(const Question& one) {
  return Py_BuildValue("iIy#y#", static_cast<int>(one.asked), static_cast<unsigned>(one.number),
                       one.context.data(), static_cast<Py_ssize_t>(one.context.size()),
                       one.sample.data(), static_cast<Py_ssize_t>(one.sample.size()));
}

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

// Gives the memory of an object of a heap type back.
inline void release(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// Adds a type to the module; false with an exception set if that fails.
inline bool add_type(PyObject* module, const char* name, PyType_Spec& spec) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  if (PyModule_AddObject(module, name, type) == 0) return true;
  Py_DECREF(type);
  return false;
}

}  // namespace otel_straggler::bindings
