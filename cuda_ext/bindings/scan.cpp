// The type Scanner: requests as bytes -> columns as bytearrays, or questions.
#include "scanning.hpp"

#include <memory>

#include "otel_straggler/field_count.hpp"
#include "otel_straggler/scan.hpp"

namespace otel_straggler::bindings {
namespace {

struct ScannerObject {
  PyObject_HEAD
  Scanner* scanner;
};

Scanner* scanner_of(PyObject* self) { return reinterpret_cast<ScannerObject*>(self)->scanner; }

// A list of (key, role, slot).
bool read_keys(PyObject* list, std::vector<Key>& keys) {
  const Py_ssize_t size = PyList_Size(list);
  if (size < 0) return false;
  if (static_cast<std::size_t>(size) > kMaxKeys) {
    PyErr_Format(PyExc_ValueError, "more than %zd keys", static_cast<Py_ssize_t>(kMaxKeys));
    return false;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    const char* text = nullptr;
    Py_ssize_t text_size = 0;
    unsigned char role = 0;
    unsigned char slot = 0;
    PyObject* item = PyList_GetItem(list, i);
    if (!PyArg_ParseTuple(item, "s#bb", &text, &text_size, &role, &slot)) return false;
    if (role > static_cast<unsigned char>(KeyRole::kForeign) || slot >= kMaxNumbers) {
      PyErr_SetString(PyExc_ValueError, "a key has no such role or slot");
      return false;
    }
    keys.push_back({{text, static_cast<std::size_t>(text_size)}, static_cast<KeyRole>(role), slot});
  }
  return true;
}

PyObject* scanner_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* list = nullptr;
  OwnOutcomes outcomes{};
  if (!PyArg_ParseTuple(args, "O(bbbb):Scanner", &list, &outcomes.row, &outcomes.bad_id, &outcomes.bad_time,
                        &outcomes.duration_not_positive)) {
    return nullptr;
  }
  for (const std::uint8_t outcome :
       {outcomes.row, outcomes.bad_id, outcomes.bad_time, outcomes.duration_not_positive}) {
    if (outcome >= kOutcomes) return PyErr_Format(PyExc_ValueError, "there is no outcome %d", outcome);
  }
  std::vector<Key> keys;
  if (!read_keys(list, keys)) return nullptr;
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  try {
    reinterpret_cast<ScannerObject*>(self)->scanner =
        std::make_unique<Scanner>(std::move(keys), outcomes).release();
  } catch (const std::bad_alloc&) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return self;
}

void scanner_dealloc(PyObject* self) {
  const std::unique_ptr<Scanner> owned(scanner_of(self));
  release(self);
}

PyObject* codes(const std::vector<std::int32_t>& values) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(values.size()));
  for (std::size_t i = 0; list != nullptr && i < values.size(); ++i) {
    PyObject* number = PyLong_FromLong(values[i]);
    if (number == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(i), number) < 0) {
      Py_DECREF(list);
      return nullptr;
    }
  }
  return list;
}

PyObject* progress_of(const Progress& one) {
  return Py_BuildValue("iLL", static_cast<int>(one.source), static_cast<long long>(one.step),
                       static_cast<long long>(one.end_ns));
}

PyObject* outcomes_of(const Columns& found) {
  PyObject* dict = PyDict_New();
  for (std::size_t outcome = 0; dict != nullptr && outcome < kOutcomes; ++outcome) {
    if (found.outcomes[outcome] == 0) continue;
    PyObject* key = PyLong_FromSize_t(outcome);
    PyObject* count = PyLong_FromUnsignedLongLong(found.outcomes[outcome]);
    const bool is_set = key != nullptr && count != nullptr && PyDict_SetItem(dict, key, count) == 0;
    Py_XDECREF(key);
    Py_XDECREF(count);
    if (!is_set) {
      Py_DECREF(dict);
      return nullptr;
    }
  }
  return dict;
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// basis, busy, nccl, kernel; None if no row has them.
PyObject* gpu_of(const Columns& found) {
  if (found.gpu.basis.empty()) return none();
  const auto& [busy, nccl, kernel] = found.gpu.times_s;
  return Py_BuildValue("NNNN", column(found.gpu.basis), column(busy), column(nccl),
                       column(kernel));
}

PyObject* columns_of(const Columns& found) {
  return Py_BuildValue("NNNNNNNNNNNNK", column(found.source), column(found.section),
                       column(found.step), column(found.start_ns), column(found.duration_s),
                       column(found.sequence), found.has_tokens ? column(found.tokens) : none(),
                       gpu_of(found), codes(found.sources), codes(found.sections), outcomes_of(found),
                       list_of(found.progress, progress_of),
                       static_cast<unsigned long long>(found.gpu.refused));
}

PyObject* scanner_scan(PyObject* self, PyObject* body) {
  Columns found;
  Verdict verdict = Verdict::kUnfamiliar;
  if (!scan_body(*scanner_of(self), body, found, verdict)) return nullptr;
  if (verdict != Verdict::kColumns) return PyLong_FromLong(static_cast<long>(verdict));
  return found.questions.empty() ? columns_of(found)
                                 : list_of(found.questions, question_of<Question>);
}

PyObject* scanner_learn_scope(PyObject* self, PyObject* args) {
  unsigned number = 0;
  int is_own = 0;
  if (!PyArg_ParseTuple(args, "Ip:learn_scope", &number, &is_own)) return nullptr;
  scanner_of(self)->learn_scope(number, is_own != 0);
  Py_RETURN_NONE;
}

PyObject* scanner_learn_sender(PyObject* self, PyObject* args) {
  unsigned number = 0;
  int source = 0;
  Sender sender;
  if (!PyArg_ParseTuple(args, "Iib:learn_sender", &number, &source, &sender.outcome)) return nullptr;
  sender.source = source;
  scanner_of(self)->learn_sender(number, sender);
  Py_RETURN_NONE;
}

// number, section, outcome, (slot, step), (kind, slot, sequence), (slot, tokens), (basis, slots...)
PyObject* scanner_learn_shape(PyObject* self, PyObject* args) {
  unsigned number = 0;
  int section = 0;
  int step_slot = 0;
  long long step = 0;
  int sequence = 0;
  int sequence_slot = 0;
  long long fixed_sequence = 0;
  int tokens_slot = 0;
  int basis = 0;
  std::array<int, 3> gpu_slots{};
  Judgement judgement;
  if (!PyArg_ParseTuple(args, "Iib(iL)(iiL)(id)(iiii):learn_shape", &number, &section,
                        &judgement.outcome, &step_slot, &step, &sequence, &sequence_slot,
                        &fixed_sequence, &tokens_slot, &judgement.tokens, &basis, &gpu_slots[0],
                        &gpu_slots[1], &gpu_slots[2])) {
    return nullptr;
  }
  if (basis < 0 || basis > static_cast<int>(Basis::kCollective)) {
    return PyErr_Format(PyExc_ValueError, "there is no basis %d", basis);
  }
  if (sequence < 0 || sequence > static_cast<int>(Judgement::Sequence::kNumber)) {
    return PyErr_Format(PyExc_ValueError, "there is no kind of sequence %d", sequence);
  }
  judgement.section = section;
  judgement.step_slot = step_slot;
  judgement.step = step;
  judgement.sequence = static_cast<Judgement::Sequence>(sequence);
  judgement.sequence_slot = sequence_slot;
  judgement.fixed_sequence = fixed_sequence;
  judgement.tokens_slot = tokens_slot;
  judgement.basis = static_cast<Basis>(basis);
  std::copy(gpu_slots.begin(), gpu_slots.end(), judgement.gpu_slots.begin());
  scanner_of(self)->learn_shape(number, judgement);
  Py_RETURN_NONE;
}

PyObject* fields_of(PyObject*, PyObject* args) {
  PyObject* body = nullptr;
  Py_ssize_t limit = 0;
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(args, "Sn:count_fields", &body, &limit)) return nullptr;
  if (PyBytes_AsStringAndSize(body, &data, &size) < 0) return nullptr;
  const Bytes message{reinterpret_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size)};
  std::size_t count = 0;
  Py_BEGIN_ALLOW_THREADS;
  count = count_fields(message, static_cast<std::size_t>(std::max<Py_ssize_t>(limit, 0)));
  Py_END_ALLOW_THREADS;
  return PyLong_FromSize_t(count);
}

PyMethodDef functions[] = {
    {"count_fields", fields_of, METH_VARARGS, "count_fields(body, limit): see field_count.hpp"},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef methods[] = {
    {"scan", scanner_scan, METH_O,
     "Columns (a tuple), questions (a list), 1 for what is unfamiliar, 2 if it is full."},
    {"learn_scope", scanner_learn_scope, METH_VARARGS, "Answer a question about a scope."},
    {"learn_sender", scanner_learn_sender, METH_VARARGS, "Answer a question about a sender."},
    {"learn_shape", scanner_learn_shape, METH_VARARGS, "Answer a question about a shape."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_scan(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, slot(scanner_new)},
      {Py_tp_dealloc, slot(scanner_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_doc, const_cast<char*>("Scans OTLP trace requests; see otlp/decode_spans.py.")},
      {0, nullptr},
  };
  PyType_Spec spec = {"otel_straggler._native.Scanner", sizeof(ScannerObject), 0,
                      Py_TPFLAGS_DEFAULT, slots};
  return PyModule_AddFunctions(module, functions) == 0 && add_type(module, "Scanner", spec);
}

}  // namespace otel_straggler::bindings
