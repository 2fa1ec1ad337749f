// detection_section(name, profile_cuda): gives the section of a name, or of the line that asks.
//
// The call stands in the user's `with` line, so it is a function of C without a frame of its own.
// What it does not know it asks of Python, which keeps the sections by name.
#include <cstdint>

#include "recording.hpp"
#include "section_timer.hpp"

namespace otel_straggler::bindings {
namespace {

PyObject* sections[2] = {nullptr, nullptr};  // by profile_cuda: dict, name -> section
PyObject* make_section = nullptr;            // (name, profile_cuda) -> section, for all others
PyObject* name_text = nullptr;
PyObject* profile_text = nullptr;
PyObject* lasti_text = nullptr;

// Sections without a name, by the place of the call. Two places may take turns in a slot: Python
// then finds the section again by its file and line.
struct Place {
  PyObject* code;  // held, so that no other code has its address
  long instruction;
  bool profiles;
  PyObject* section;
};
constexpr std::size_t kPlaces = 1'024;
Place places[kPlaces] = {};

void forget(Place& place) {
  const Place before = place;
  place = Place{};
  Py_XDECREF(before.code);
  Py_XDECREF(before.section);
}

Place& place_of(PyObject* code, long instruction) {
  const auto address = reinterpret_cast<std::uintptr_t>(code) >> 4;
  return places[(address ^ (address >> 10) ^ static_cast<std::uintptr_t>(instruction)) % kPlaces];
}

PyObject* made(PyObject* name, bool profiles) {
  if (make_section == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "set_detection_sections() was not called");
    return nullptr;
  }
  PyObject* const flag = profiles ? Py_True : Py_False;
  return PyObject_CallFunctionObjArgs(make_section, name, flag, nullptr);
}

PyObject* shared(PyObject* object) {
  Py_INCREF(object);
  return object;
}

PyObject* of_name(PyObject* name, bool profiles) {
  PyObject* const table = sections[profiles ? 1 : 0];
  PyObject* const known = table == nullptr ? nullptr : PyDict_GetItemWithError(table, name);
  if (known != nullptr) return shared(known);
  PyErr_Clear();  // a name that cannot be hashed
  return made(name, profiles);
}

// The instruction of the frame that asks; -1 with an exception set if it cannot be read.
long instruction_of(PyFrameObject* frame) {
  PyObject* number = PyObject_GetAttr(reinterpret_cast<PyObject*>(frame), lasti_text);
  if (number == nullptr) return -1;
  const long instruction = PyLong_AsLong(number);
  Py_DECREF(number);
  return instruction;
}

PyObject* of_place(bool profiles) {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return made(Py_None, profiles);
  const long instruction = instruction_of(frame);
  if (instruction == -1 && PyErr_Occurred() != nullptr) return nullptr;
  PyObject* const code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame));
  Place& place = place_of(code, instruction);
  if (place.code == code && place.instruction == instruction && place.profiles == profiles) {
    Py_DECREF(code);
    return shared(place.section);
  }
  PyObject* const section = made(Py_None, profiles);
  if (section == nullptr || !is_section(section)) {  // nothing to keep: nothing is recorded here
    Py_DECREF(code);
    return section;
  }
  forget(place);
  place = {code, instruction, profiles, shared(section)};
  return section;
}

bool is_keyword(PyObject* given, PyObject* known) {
  return given == known || PyUnicode_Compare(given, known) == 0;
}

PyObject* py_detection_section(PyObject*, PyObject* const* args, Py_ssize_t count,
                               PyObject* keywords) {
  PyObject* given[2] = {Py_None, Py_True};
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
  if (count > 2) {
    PyErr_SetString(PyExc_TypeError, "detection_section() takes a name and profile_cuda");
    return nullptr;
  }
  for (Py_ssize_t at = 0; at < count; ++at) given[at] = args[at];
  for (Py_ssize_t at = 0; at < named; ++at) {
    PyObject* const keyword = PyTuple_GetItem(keywords, at);
    const Py_ssize_t which = is_keyword(keyword, name_text) ? 0 : 1;
    if (which < count || (which == 1 && !is_keyword(keyword, profile_text))) {
      PyErr_Format(PyExc_TypeError, "detection_section() got %R twice or does not know it",
                   keyword);
      return nullptr;
    }
    given[which] = args[count + at];
  }
  const int profiles = PyObject_IsTrue(given[1]);
  if (profiles < 0) return nullptr;
  return given[0] == Py_None ? of_place(profiles != 0) : of_name(given[0], profiles != 0);
}

PyObject* py_set_detection_sections(PyObject*, PyObject* args) {
  PyObject* given[3];
  if (!PyArg_ParseTuple(args, "O!O!O", &PyDict_Type, &given[0], &PyDict_Type, &given[1],
                        &given[2])) {
    return nullptr;
  }
  PyObject** const parts[3] = {&sections[0], &sections[1], &make_section};
  for (int at = 0; at < 3; ++at) {
    PyObject* const before = *parts[at];
    *parts[at] = shared(given[at]);
    Py_XDECREF(before);
  }
  for (Place& place : places) forget(place);
  Py_RETURN_NONE;
}

PyObject* py_set_sampling(PyObject*, PyObject* number) {
  const unsigned long every = PyLong_AsUnsignedLong(number);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!set_sampling(every > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(every))) {
    PyErr_SetString(PyExc_ValueError, "one in at least 1 execution is timed");
    return nullptr;
  }
  Py_RETURN_NONE;
}

constexpr char kDetectionSection[] =
    "detection_section(name=None, profile_cuda=True)\n--\n\n"
    "Time a ``with`` block or, as a decorator, every call.\n\n"
    "Args:\n"
    "    name: default: the caller's file and line.\n"
    "    profile_cuda: whether its kernels count towards the GPU scores.\n\n"
    "Raises: UsageError: before ``initialize()``.\n";

PyMethodDef functions[] = {
    {"detection_section",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_detection_section)),
     METH_FASTCALL | METH_KEYWORDS, kDetectionSection},
    {"set_detection_sections", py_set_detection_sections, METH_VARARGS, nullptr},
    {"set_sampling", py_set_sampling, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_detection_section(PyObject* module) {
  name_text = PyUnicode_InternFromString("name");
  profile_text = PyUnicode_InternFromString("profile_cuda");
  lasti_text = PyUnicode_InternFromString("f_lasti");
  return name_text != nullptr && profile_text != nullptr && lasti_text != nullptr &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace otel_straggler::bindings
