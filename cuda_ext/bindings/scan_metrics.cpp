// The type MetricScanner: requests as bytes -> heartbeats and section times, or questions.
#include "scanning.hpp"

#include <memory>

#include "otel_straggler/scan_metrics.hpp"

namespace otel_straggler::bindings {
namespace {

struct ScannerObject {
  PyObject_HEAD
  MetricScanner* scanner;
};

MetricScanner& scanner_of(PyObject* self) {
  return *reinterpret_cast<ScannerObject*>(self)->scanner;
}

// --- rules ----------------------------------------------------------------------------------------

bool refuse(const char* message) {
  PyErr_SetString(PyExc_ValueError, message);
  return false;
}

// Calls `add` with each item of a list of at most kMaxKeys.
template <typename Add>
bool read_list(PyObject* list, Add add) {
  const Py_ssize_t size = PyList_Size(list);
  if (size < 0) return false;
  if (static_cast<std::size_t>(size) > kMaxKeys) return refuse("more keys than there is room for");
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!add(PyList_GetItem(list, i))) return false;
  }
  return true;
}

// (key, identifies the sender, the section, the kernel, slot)
bool add_key(PyObject* item, std::vector<PointKey>& to) {
  const char* text = nullptr;
  Py_ssize_t size = 0;
  int identifies_sender = 0;
  int identifies_section = 0;
  int identifies_kernel = 0;
  unsigned char slot = 0;
  if (!PyArg_ParseTuple(item, "s#pppb", &text, &size, &identifies_sender, &identifies_section,
                        &identifies_kernel, &slot)) {
    return false;
  }
  if (slot > kNoText) return refuse("a key has no such slot");
  to.push_back({{text, static_cast<std::size_t>(size)},
                identifies_sender != 0,
                identifies_section != 0,
                static_cast<TextSlot>(slot),
                identifies_kernel != 0});
  return true;
}

bool is_place(MetricRole role, std::size_t slot) {
  switch (role) {
    case MetricRole::kNumber: return slot < kBeatNumbers;
    case MetricRole::kCounts: return slot < kBeatCounts;
    default: return role <= MetricRole::kKernels;
  }
}

// (name, role, slot, largest, most)
bool add_metric(PyObject* item, std::vector<MetricRule>& to) {
  const char* name = nullptr;
  Py_ssize_t size = 0;
  unsigned char role = 0;
  MetricRule rule{};
  if (!PyArg_ParseTuple(item, "s#bbdI", &name, &size, &role, &rule.slot, &rule.largest,
                        &rule.max_count)) {
    return false;
  }
  rule.name.assign(name, static_cast<std::size_t>(size));
  rule.role = static_cast<MetricRole>(role);
  if (!is_place(rule.role, rule.slot)) return refuse("a metric has no such role or slot");
  to.push_back(std::move(rule));
  return true;
}

// (unit, seconds)
bool add_unit(PyObject* item, std::vector<Unit>& to) {
  const char* name = nullptr;
  Py_ssize_t size = 0;
  double seconds = 0.0;
  if (!PyArg_ParseTuple(item, "s#d", &name, &size, &seconds)) return false;
  to.push_back({{name, static_cast<std::size_t>(size)}, seconds});
  return true;
}

bool read_rules(PyObject* args, MetricRules& rules) {
  PyObject* keys = nullptr;
  PyObject* metrics = nullptr;
  PyObject* units = nullptr;
  OwnUses& uses = rules.uses;
  if (!PyArg_ParseTuple(args, "OOO(bbbbbb):MetricScanner", &keys, &metrics, &units, &uses.used,
                        &uses.times, &uses.unknown, &uses.malformed, &uses.kernels,
                        &uses.not_delta)) {
    return false;
  }
  for (const std::uint8_t use : {uses.used, uses.times, uses.unknown, uses.malformed, uses.kernels,
                                 uses.not_delta}) {
    if (use >= kUses) return refuse("there is no such use of a point");
  }
  return read_list(keys, [&](PyObject* item) { return add_key(item, rules.keys); }) &&
         read_list(metrics, [&](PyObject* item) { return add_metric(item, rules.metrics); }) &&
         read_list(units, [&](PyObject* item) { return add_unit(item, rules.units); });
}

PyObject* made(PyTypeObject* type, PyObject* args) {
  MetricRules rules{};
  if (!read_rules(args, rules)) return nullptr;
  auto scanner = std::make_unique<MetricScanner>(std::move(rules));
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate(type, 0);
  if (self != nullptr) reinterpret_cast<ScannerObject*>(self)->scanner = scanner.release();
  return self;
}

PyObject* scanner_new(PyTypeObject* type, PyObject* args, PyObject*) {
  try {
    return made(type, args);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

void scanner_dealloc(PyObject* self) {
  const std::unique_ptr<MetricScanner> owned(reinterpret_cast<ScannerObject*>(self)->scanner);
  release(self);
}

// --- columns --------------------------------------------------------------------------------------

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject* number_of(const NumberValue& value) {
  switch (value.kind) {
    case NumberValue::Kind::kInt: return PyLong_FromLongLong(value.integer);
    case NumberValue::Kind::kDouble: return PyFloat_FromDouble(value.real);
    default: return none();
  }
}

PyObject* number_of(const std::optional<double>& number) {
  return number ? PyFloat_FromDouble(*number) : none();
}

PyObject* counts_of(const Counts& counts) {
  if (counts.empty()) return none();
  return list_of(counts, [](const auto& one) {
    return Py_BuildValue("iL", static_cast<int>(one.first), static_cast<long long>(one.second));
  });
}

PyObject* beat_of(const Beat& beat) {
  const auto& numbers = beat.numbers;
  return Py_BuildValue("iNNNNNiiiNN", static_cast<int>(beat.source), number_of(numbers[0]),
                       number_of(numbers[1]), number_of(numbers[2]), number_of(numbers[3]),
                       number_of(numbers[4]), static_cast<int>(beat.texts[kSectionText]),
                       static_cast<int>(beat.texts[kPhaseText]),
                       static_cast<int>(beat.texts[kOutcomeText]), counts_of(beat.counts[0]),
                       counts_of(beat.counts[1]));
}

PyObject* times_of(const PointTimes& times) {
  const BucketCounts& buckets = times.buckets;
  PyObject* scale = buckets.scale ? PyLong_FromLong(*buckets.scale) : none();
  return Py_BuildValue(
      "iiLLNdNNNNNNiLd", static_cast<int>(times.source), static_cast<int>(times.section),
      static_cast<long long>(times.start_ns), static_cast<long long>(times.end_ns),
      PyBool_FromLong(times.is_cumulative), times.unit_s, number_of(times.min_s),
      number_of(times.max_s), number_of(times.sum), column(buckets.counts),
      list_of(buckets.bounds, PyFloat_FromDouble), scale, static_cast<int>(buckets.first),
      static_cast<long long>(buckets.zero), buckets.zero_bound);
}

PyObject* kernels_of(const KernelColumns& found) {
  if (found.count.empty()) return none();
  return Py_BuildValue("(NNNNNNNNNNNN)", column(found.source), column(found.cell),
                       column(found.scale), column(found.start_ns), column(found.end_ns),
                       column(found.count), column(found.ends), column(found.sum_s),
                       column(found.min_s), column(found.max_s), column(found.index),
                       column(found.runs));
}

PyObject* points_of(const MetricColumns& found) {
  PyObject* points = PyTuple_New(static_cast<Py_ssize_t>(kUses));
  for (std::size_t use = 0; points != nullptr && use < kUses; ++use) {
    PyObject* count = PyLong_FromUnsignedLongLong(found.points[use]);
    if (count == nullptr || PyTuple_SetItem(points, static_cast<Py_ssize_t>(use), count) < 0) {
      Py_DECREF(points);
      return nullptr;
    }
  }
  return points;
}

PyObject* scanner_scan(PyObject* self, PyObject* body) {
  MetricColumns found;
  Verdict verdict = Verdict::kUnfamiliar;
  if (!scan_body(scanner_of(self), body, found, verdict)) return nullptr;
  if (verdict != Verdict::kColumns) return PyLong_FromLong(static_cast<long>(verdict));
  if (!found.questions.empty()) return list_of(found.questions, question_of<PointQuestion>);
  return Py_BuildValue("NNNN", list_of(found.beats, beat_of), list_of(found.times, times_of),
                       kernels_of(found.kernels), points_of(found));
}

PyObject* scanner_learn(PyObject* self, PyObject* args) {
  unsigned char asked = 0;
  unsigned number = 0;
  int code = 0;
  unsigned char use = 0;
  if (!PyArg_ParseTuple(args, "bIib:learn", &asked, &number, &code, &use)) return nullptr;
  if (asked > static_cast<unsigned char>(AskedOfPoints::kCell)) {
    return PyErr_Format(PyExc_ValueError, "there is no question %d", asked);
  }
  scanner_of(self).learn(static_cast<AskedOfPoints>(asked), number, code, use);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"scan", scanner_scan, METH_O,
     "Columns (a tuple), questions (a list), 1 for what is unfamiliar, 2 if it is full."},
    {"learn", scanner_learn, METH_VARARGS, "Answer a question."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_scan_metrics(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, slot(scanner_new)},
      {Py_tp_dealloc, slot(scanner_dealloc)},
      {Py_tp_methods, methods},
      {Py_tp_doc, const_cast<char*>("Scans OTLP metrics requests; see otlp/decode_metrics.py.")},
      {0, nullptr},
  };
  PyType_Spec spec = {"otel_straggler._native.MetricScanner", sizeof(ScannerObject), 0,
                      Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, "MetricScanner", spec);
}

}  // namespace otel_straggler::bindings
