// otel_straggler._native.SpanEncoder, and the ids by themselves for tests.
#include "exporting.hpp"

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace otel_straggler::bindings {
namespace {

using namespace encoding;

struct EncoderObject {
  PyObject_HEAD
  std::shared_ptr<SharedEncoder>* shared;  // owned; an exporter may share the encoder
};

PyTypeObject* encoder_type = nullptr;

SharedEncoder& shared_of(PyObject* self) {
  return **reinterpret_cast<EncoderObject*>(self)->shared;
}

std::string text_of(const char* bytes, Py_ssize_t size) {
  return std::string(bytes, static_cast<std::size_t>(size));
}

// Runs `work` without the GIL, alone; false with an exception set if memory ran out.
template <typename Work>
bool run_alone(SharedEncoder& shared, Work&& work) {
  bool is_done = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    work(shared.encoder);
  } catch (const std::exception&) {
    is_done = false;
  }
  Py_END_ALLOW_THREADS
  if (!is_done) PyErr_NoMemory();
  return is_done;
}

bool read_words(PyObject* given, Vocabulary& words) {
  if (PyTuple_Check(given) == 0 || PyTuple_Size(given) != static_cast<Py_ssize_t>(kWords)) {
    PyErr_Format(PyExc_ValueError, "words: expected a tuple of %zu byte strings",
                 static_cast<std::size_t>(kWords));
    return false;
  }
  for (std::size_t at = 0; at < kWords; ++at) {
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    PyObject* const word = PyTuple_GetItem(given, static_cast<Py_ssize_t>(at));
    if (PyBytes_AsStringAndSize(word, &bytes, &size) != 0) return false;
    words[at] = text_of(bytes, size);
  }
  return true;
}

PyObject* new_encoder(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  PyObject* given = nullptr;
  const char* run_id = nullptr;
  const char* group = nullptr;
  Py_ssize_t run_id_size = 0;
  Py_ssize_t group_size = 0;
  long long attempt = 0;
  long long rank = 0;
  unsigned long long seed = 0;
  unsigned long long spans_per_s = 0;
  if (PyArg_ParseTuple(args, "Oy#Ly#LKK:SpanEncoder", &given, &run_id, &run_id_size, &attempt,
                       &group, &group_size, &rank, &seed, &spans_per_s) == 0) {
    return nullptr;
  }
  Vocabulary words;
  if (!read_words(given, words)) return nullptr;
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  try {
    Identity who{text_of(run_id, run_id_size), attempt, text_of(group, group_size), rank};
    reinterpret_cast<EncoderObject*>(self)->shared = new std::shared_ptr<SharedEncoder>(
        std::make_shared<SharedEncoder>(std::move(words), std::move(who), seed, spans_per_s));
  } catch (const std::exception&) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return self;
}

void free_encoder(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  const std::unique_ptr<std::shared_ptr<SharedEncoder>> owned(
      reinterpret_cast<EncoderObject*>(self)->shared);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* done(bool is_named, unsigned int id) {
  if (is_named) Py_RETURN_NONE;
  return PyErr_Format(PyExc_ValueError, "id %u: expected a number below %u", id, kMaxNames);
}

PyObject* add_section(PyObject* self, PyObject* args) {
  unsigned int id = 0;
  const char* name = nullptr;
  const char* kind = nullptr;
  Py_ssize_t name_size = 0;
  Py_ssize_t kind_size = 0;
  if (PyArg_ParseTuple(args, "Iy#y#", &id, &name, &name_size, &kind, &kind_size) == 0) {
    return nullptr;
  }
  bool is_named = false;
  const bool is_done = run_alone(shared_of(self), [&](SpanEncoder& encoder) {
    is_named = encoder.add_section(id, text_of(name, name_size), text_of(kind, kind_size));
  });
  return is_done ? done(is_named, id) : nullptr;
}

PyObject* add_phase(PyObject* self, PyObject* args) {
  unsigned int id = 0;
  const char* text = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "Iy#", &id, &text, &size) == 0) return nullptr;
  bool is_named = false;
  const bool is_done = run_alone(shared_of(self), [&](SpanEncoder& encoder) {
    is_named = encoder.add_phase(id, text_of(text, size));
  });
  return is_done ? done(is_named, id) : nullptr;
}

PyObject* add_epoch(PyObject* self, PyObject* args) {
  unsigned int id = 0;
  const char* resource = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "Iy#", &id, &resource, &size) == 0) return nullptr;
  const bool is_done = run_alone(shared_of(self), [&](SpanEncoder& encoder) {
    encoder.add_epoch(id, proto::Bytes(resource, resource + size));
  });
  if (!is_done) return nullptr;
  Py_RETURN_NONE;
}

// A list of (bytes, spans, runs) whose bytes are not written yet; `places` is where they go.
PyObject* empty_list_of(const std::vector<Request>& requests, std::vector<char*>& places) {
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(requests.size()));
  if (list == nullptr) return nullptr;
  for (std::size_t at = 0; at < requests.size(); ++at) {
    PyObject* const body =
        PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(requests[at].size()));
    places[at] = body == nullptr ? nullptr : PyBytes_AsString(body);
    PyObject* const pair =
        body == nullptr ? nullptr : Py_BuildValue("(NIK)", body, requests[at].spans(),
                                               static_cast<unsigned long long>(requests[at].runs()));
    if (pair == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(at), pair) != 0) {
      Py_DECREF(list);
      return nullptr;
    }
  }
  return list;
}

// No other thread knows the list yet, so its bytes are written, and pages of fresh memory taken in,
// without the GIL.
PyObject* list_of(SharedEncoder& shared, std::vector<Request>& requests) {
  PyObject* list = nullptr;
  std::vector<char*> places;
  try {
    places.resize(requests.size());
    list = empty_list_of(requests, places);
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
  if (list == nullptr) return nullptr;
  const bool is_done = run_alone(shared, [&](SpanEncoder& encoder) {
    for (std::size_t at = 0; at < requests.size(); ++at) {
      std::memcpy(places[at], requests[at].data(), requests[at].size());
    }
    encoder.recycle(requests);
  });
  if (is_done) return list;
  Py_DECREF(list);
  return nullptr;
}

PyObject* encode(PyObject* self, PyObject* args) {
  const char* block = nullptr;
  Py_ssize_t size = 0;
  long long offset_ns = 0;
  unsigned long long one_in = 1;
  if (PyArg_ParseTuple(args, "y#LK", &block, &size, &offset_ns, &one_in) == 0) return nullptr;
  const auto bytes = static_cast<std::size_t>(size);
  if (bytes % sizeof(Record) != 0) {
    return PyErr_Format(PyExc_ValueError, "block of %zu bytes: expected a multiple of %zu", bytes,
                        sizeof(Record));
  }
  std::vector<Request> requests;
  const bool is_done = run_alone(shared_of(self), [&](SpanEncoder& encoder) {
    encoder.encode(reinterpret_cast<const std::uint8_t*>(block), bytes / sizeof(Record), offset_ns,
                   one_in, requests);
  });
  return is_done ? list_of(shared_of(self), requests) : nullptr;
}

PyObject* counts(PyObject* self, PyObject* /*unused*/) {
  EncodeCounts found;
  const bool is_done = run_alone(
      shared_of(self), [&](const SpanEncoder& encoder) { found = encoder.counts(); });
  if (!is_done) return nullptr;
  return Py_BuildValue("{s:K,s:K,s:K,s:K}", "spans", found.spans, "folded_runs", found.folded_runs,
                       "bad_records", found.bad_records, "other_epochs", found.other_epochs);
}

PyObject* folded(PyObject* self, PyObject* /*unused*/) {
  std::vector<std::pair<std::string, std::uint64_t>> found;
  const bool is_done = run_alone(shared_of(self), [&](const SpanEncoder& encoder) {
    const std::vector<std::uint64_t>& runs = encoder.folded_by_name();
    for (std::uint32_t name = 0; name < runs.size(); ++name) {
      if (runs[name] > 0) found.emplace_back(encoder.names().name_of(name), runs[name]);
    }
  });
  PyObject* const dict = is_done ? PyDict_New() : nullptr;
  if (dict == nullptr) return nullptr;
  for (const auto& [name, runs] : found) {
    PyObject* const key =
        PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace");
    PyObject* const value = PyLong_FromUnsignedLongLong(runs);
    const bool is_put = key != nullptr && value != nullptr && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (!is_put) {
      Py_DECREF(dict);
      return nullptr;
    }
  }
  return dict;
}

PyMethodDef encoder_methods[] = {
    {"add_section", add_section, METH_VARARGS, "add_section(id, name, kind)"},
    {"add_phase", add_phase, METH_VARARGS, "add_phase(id, text)"},
    {"add_epoch", add_epoch, METH_VARARGS, "add_epoch(id, resource)"},
    {"encode", encode, METH_VARARGS,
     "encode(block, offset_ns, one_in) -> [(request, spans, runs)]; without the GIL"},
    {"counts", counts, METH_NOARGS, "Records by what became of them."},
    {"folded", folded, METH_NOARGS, "Runs in spans for several, by section."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot encoder_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_encoder)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_encoder)},
    {Py_tp_methods, encoder_methods},
    {0, nullptr},
};

PyType_Spec encoder_spec = {"otel_straggler._native.SpanEncoder", sizeof(EncoderObject), 0,
                            Py_TPFLAGS_DEFAULT, encoder_slots};

// --- ids, for tests ------------------------------------------------------------------------------

template <std::size_t kSize>
PyObject* bytes_of(const std::array<std::uint8_t, kSize>& id) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(id.data()), kSize);
}

PyObject* blake2b(PyObject* /*module*/, PyObject* args) {
  const char* text = nullptr;
  const char* person = nullptr;
  Py_ssize_t size = 0;
  Py_ssize_t person_size = 0;
  Py_ssize_t digest_size = 0;
  if (PyArg_ParseTuple(args, "y#ny#", &text, &size, &digest_size, &person, &person_size) == 0) {
    return nullptr;
  }
  if (digest_size < 1 || digest_size > static_cast<Py_ssize_t>(Blake2b::kMaxBytes)) {
    return PyErr_Format(PyExc_ValueError, "digest of %zd bytes: expected 1 to 64", digest_size);
  }
  std::array<std::uint8_t, Blake2b::kMaxBytes> digest{};
  Blake2b::hash({text, static_cast<std::size_t>(size)},
                {person, static_cast<std::size_t>(person_size)}, digest.data(),
                static_cast<std::size_t>(digest_size));
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(digest.data()), digest_size);
}

PyObject* trace_ids(PyObject* /*module*/, PyObject* args) {
  const char* run_id = nullptr;
  const char* group = nullptr;
  Py_ssize_t run_id_size = 0;
  Py_ssize_t group_size = 0;
  long long attempt = 0;
  long long rank = 0;
  long long step = 0;
  long long unix_ns = 0;
  if (PyArg_ParseTuple(args, "y#Ly#LLL", &run_id, &run_id_size, &attempt, &group, &group_size,
                       &rank, &step, &unix_ns) == 0) {
    return nullptr;
  }
  try {
    const Identity who{text_of(run_id, run_id_size), attempt, text_of(group, group_size), rank};
    const TraceId of_step = step_trace_id(who, step);
    return Py_BuildValue("(NNN)", bytes_of(of_step),
                         bytes_of(window_trace_id(who, window_of(unix_ns))),
                         bytes_of(root_span_id(of_step)));
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyObject* sketch(PyObject* /*module*/, PyObject* lengths) {
  try {
    std::vector<std::uint16_t> buckets;
    const Py_ssize_t count = PySequence_Size(lengths);
    for (Py_ssize_t at = 0; at < count; ++at) {
      PyObject* const item = PySequence_GetItem(lengths, at);
      if (item == nullptr) return nullptr;
      const unsigned long long length_ns = PyLong_AsUnsignedLongLong(item);
      Py_DECREF(item);
      if (PyErr_Occurred() != nullptr) return nullptr;
      buckets.push_back(sketch_bucket(length_ns));
    }
    if (count < 0) return nullptr;
    proto::Bytes bytes;
    append_sketch(bytes, buckets);
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                     static_cast<Py_ssize_t>(bytes.size()));
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyMethodDef functions[] = {
    {"blake2b", blake2b, METH_VARARGS, "blake2b(text, digest_size, person)"},
    {"trace_ids", trace_ids, METH_VARARGS,
     "trace_ids(run_id, attempt, group, rank, step, unix_ns) -> of the step, of the window, root"},
    {"sketch", sketch, METH_O, "sketch(lengths_ns) -> bytes"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_encode(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) != 0) return false;
  PyObject* const type = PyType_FromSpec(&encoder_spec);
  if (type == nullptr) return false;
  encoder_type = reinterpret_cast<PyTypeObject*>(type);  // for as long as the process lives
  return PyModule_AddObjectRef(module, "SpanEncoder", type) == 0;
}

std::shared_ptr<SharedEncoder> encoder_of(PyObject* object) {
  if (Py_TYPE(object) == encoder_type) return *reinterpret_cast<EncoderObject*>(object)->shared;
  PyErr_SetString(PyExc_TypeError, "expected a SpanEncoder");
  return nullptr;
}

}  // namespace otel_straggler::bindings
