// otel_straggler._native.Exporter: the thread that sends, its configuration and its state.
#include "exporting.hpp"
#include "recording.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace otel_straggler::bindings {
namespace {

struct ExporterObject {
  PyObject_HEAD
  std::shared_ptr<Exporter>* exporter;  // owned
  std::uint64_t incarnation;            // in a forked child it is the parent's
};

Exporter& exporter_of(PyObject* self) { return **reinterpret_cast<ExporterObject*>(self)->exporter; }

bool is_ours(PyObject* self) {
  return reinterpret_cast<ExporterObject*>(self)->incarnation == recording.incarnation;
}

std::string text_of(const char* bytes, Py_ssize_t size) {
  return std::string(bytes, static_cast<std::size_t>(size));
}

bool read_bytes(PyObject* given, std::string& text) {
  char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(given, &bytes, &size) != 0) return false;
  text = text_of(bytes, size);
  return true;
}

bool read_words(PyObject* given, HeartbeatVocabulary& words) {
  if (PyTuple_Check(given) == 0 ||
      PyTuple_Size(given) != static_cast<Py_ssize_t>(words.size())) {
    PyErr_Format(PyExc_ValueError, "words: expected a tuple of %zu byte strings", words.size());
    return false;
  }
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (!read_bytes(PyTuple_GetItem(given, static_cast<Py_ssize_t>(at)), words[at])) return false;
  }
  return true;
}

bool read_target(PyObject* given, Target& target) {
  const char* host = nullptr;
  const char* port = nullptr;
  const char* head = nullptr;
  const char* scorer_header = nullptr;
  Py_ssize_t head_size = 0;
  if (PyArg_ParseTuple(given, "ssy#s", &host, &port, &head, &head_size, &scorer_header) == 0) {
    return false;
  }
  target = {host, port, text_of(head, head_size), scorer_header};
  return true;
}

struct Given {
  HeartbeatVocabulary words;
  std::shared_ptr<SharedEncoder> encoder;
  ExporterSettings settings;
};

bool read_given(PyObject* args, Given& given) {
  PyObject* words = nullptr;
  PyObject* encoder = nullptr;
  PyObject* traces = nullptr;
  PyObject* metrics = nullptr;
  int sends_spans = 1;
  int sends_metrics = 1;
  int is_one_origin = 1;
  int is_trusted = 1;
  long long traces_timeout_ns = 0;
  long long metrics_timeout_ns = 0;
  long long flush_ns = 0;
  long long heartbeat_ns = 0;
  unsigned long long queue_bytes = 0;
  unsigned long long sample_steps = 0;
  if (PyArg_ParseTuple(args, "OOO!O!ppppLLLLKK:Exporter", &words, &encoder, &PyTuple_Type, &traces,
                       &PyTuple_Type, &metrics, &sends_spans, &sends_metrics, &is_one_origin,
                       &is_trusted, &traces_timeout_ns, &metrics_timeout_ns, &flush_ns,
                       &heartbeat_ns, &queue_bytes, &sample_steps) == 0) {
    return false;
  }
  given.encoder = encoder_of(encoder);
  ExporterSettings& settings = given.settings;
  if (given.encoder == nullptr || !read_words(words, given.words) ||
      !read_target(traces, settings.traces) || !read_target(metrics, settings.metrics)) {
    return false;
  }
  settings.sends_spans = sends_spans != 0;
  settings.sends_metrics = sends_metrics != 0;
  settings.is_one_origin = is_one_origin != 0;
  settings.is_trusted = is_trusted != 0;
  settings.traces_timeout_ns = traces_timeout_ns;
  settings.metrics_timeout_ns = metrics_timeout_ns;
  settings.flush_ns = flush_ns;
  settings.heartbeat_ns = heartbeat_ns;
  settings.queue_bytes = queue_bytes;
  settings.sample_steps = sample_steps;
  settings.main_tid = static_cast<std::uint32_t>(::getpid());
  return true;
}

PyObject* new_exporter(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  if (recording.recorder == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "open_block() was not called");
    return nullptr;
  }
  try {
    Given given;
    if (!read_given(args, given)) return nullptr;
    auto made = std::make_shared<Exporter>(std::move(given.settings), std::move(given.words),
                                           std::move(given.encoder), *recording.recorder,
                                           *recording.handoff, *recording.gpu_timers);
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* const self = allocate(type, 0);
    if (self == nullptr) return nullptr;
    auto* const object = reinterpret_cast<ExporterObject*>(self);
    object->incarnation = recording.incarnation;
    object->exporter = new std::shared_ptr<Exporter>(std::move(made));
    recording.handoff->set_listening(Reader::kExporter, true);  // it misses nothing from now on
    return self;
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

void free_exporter(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  if (is_ours(self)) delete reinterpret_cast<ExporterObject*>(self)->exporter;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

// Runs `work` without the GIL: another thread may hold the lock for as long as encoding takes.
template <typename Work>
bool run(Work&& work) {
  bool is_done = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    work();
  } catch (const std::exception&) {
    is_done = false;
  }
  Py_END_ALLOW_THREADS
  if (!is_done) PyErr_NoMemory();
  return is_done;
}

PyObject* start(PyObject* self, PyObject* /*unused*/) {
  if (!run([&] { exporter_of(self).start(); })) return nullptr;
  Py_RETURN_NONE;
}

PyObject* begin_flush(PyObject* self, PyObject* args) {
  long long deadline_ns = 0;
  const char* outcome = nullptr;
  if (PyArg_ParseTuple(args, "Ls", &deadline_ns, &outcome) == 0) return nullptr;
  std::uint64_t flush = 0;
  if (!run([&] { flush = exporter_of(self).begin_flush(deadline_ns, outcome); })) return nullptr;
  return PyLong_FromUnsignedLongLong(flush);
}

PyObject* wait(PyObject* self, PyObject* args) {
  unsigned long long flush = 0;
  long long until_ns = 0;
  if (PyArg_ParseTuple(args, "KL", &flush, &until_ns) == 0) return nullptr;
  bool is_flushed = false;
  if (!run([&] { is_flushed = exporter_of(self).wait(flush, until_ns); })) return nullptr;
  return PyBool_FromLong(is_flushed);
}

PyObject* stop(PyObject* self, PyObject* args) {
  long long until_ns = 0;
  if (PyArg_ParseTuple(args, "L", &until_ns) == 0) return nullptr;
  bool has_ended = false;
  if (!run([&] { has_ended = exporter_of(self).stop(until_ns); })) return nullptr;
  recording.handoff->set_listening(Reader::kExporter, false);
  return PyBool_FromLong(has_ended);
}

// What the process ends with is known to C's exit() alone: `raise SystemExit(1)` leaves nothing that
// Python's atexit could read. There is no Python any more then.
struct ExitWatch {
  std::shared_ptr<Exporter> exporter;
  std::string outcome;
  std::string code_key;
  std::int64_t timeout_ns;
  pid_t process;
};

void at_exit(int status, void* argument) {
  const std::unique_ptr<ExitWatch> watch(static_cast<ExitWatch*>(argument));
  if (status == 0 || watch->process != ::getpid()) return;
  try {
    watch->exporter->correct_outcome(watch->outcome, watch->code_key,
                                     static_cast<std::uint64_t>(status) & 0xFF,
                                     monotonic_ns() + watch->timeout_ns);
  } catch (const std::exception&) {  // no memory: the process ends without it
  }
}

PyObject* correct_at_exit(PyObject* self, PyObject* args) {
  const char* outcome = nullptr;
  const char* code_key = nullptr;
  long long timeout_ns = 0;
  if (PyArg_ParseTuple(args, "ssL", &outcome, &code_key, &timeout_ns) == 0) return nullptr;
#ifdef __GLIBC__
  if (!is_ours(self)) Py_RETURN_NONE;
  try {
    auto* const object = reinterpret_cast<ExporterObject*>(self);
    auto watch = std::make_unique<ExitWatch>(
        ExitWatch{*object->exporter, outcome, code_key, timeout_ns, ::getpid()});
    if (::on_exit(at_exit, watch.get()) == 0) watch.release();
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
#endif
  Py_RETURN_NONE;
}

PyObject* set_resource(PyObject* self, PyObject* args) {
  unsigned int epoch = 0;
  const char* resource = nullptr;
  Py_ssize_t size = 0;
  if (PyArg_ParseTuple(args, "Iy#", &epoch, &resource, &size) == 0) return nullptr;
  if (!run([&] { exporter_of(self).set_resource(epoch, text_of(resource, size)); })) return nullptr;
  Py_RETURN_NONE;
}

bool read_counts(PyObject* given, CountsByName& counts) {
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(given, &at, &key, &value) != 0;) {
    std::string name;
    if (!read_bytes(key, name)) return false;
    counts[name] = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

PyObject* describe(PyObject* self, PyObject* args) {
  const char* info = nullptr;
  Py_ssize_t size = 0;
  PyObject* losses = nullptr;
  if (PyArg_ParseTuple(args, "y#O!", &info, &size, &PyDict_Type, &losses) == 0) return nullptr;
  try {
    CountsByName counts;
    if (!read_counts(losses, counts)) return nullptr;
    if (!run([&] { exporter_of(self).describe(text_of(info, size), std::move(counts)); })) {
      return nullptr;
    }
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}

PyObject* dict_of(const CountsByName& counts) {
  PyObject* const dict = PyDict_New();
  for (const auto& [name, count] : counts) {
    PyObject* const value = dict == nullptr ? nullptr : PyLong_FromUnsignedLongLong(count);
    const bool is_put = value != nullptr && PyDict_SetItemString(dict, name.c_str(), value) == 0;
    Py_XDECREF(value);
    if (!is_put) {
      Py_XDECREF(dict);
      return nullptr;
    }
  }
  return dict;
}

PyObject* list_of(const std::vector<Note>& notes) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(notes.size()));
  for (std::size_t at = 0; list != nullptr && at < notes.size(); ++at) {
    const std::string& words = notes[at].words;
    PyObject* const text =
        PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace");
    PyObject* const note =
        text == nullptr ? nullptr
                        : Py_BuildValue("(iiN)", static_cast<int>(notes[at].kind),
                                        notes[at].status, text);
    if (note == nullptr || PyList_SetItem(list, static_cast<Py_ssize_t>(at), note) != 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

PyObject* state(PyObject* self, PyObject* /*unused*/) {
  ExporterState now;
  if (!run([&] { now = exporter_of(self).state(); })) return nullptr;
  PyObject* const dropped = dict_of(now.dropped);
  if (dropped == nullptr) return nullptr;
  return Py_BuildValue("{s:N,s:K,s:K,s:K,s:N}", "is_scorer", PyBool_FromLong(now.is_scorer),
                       "recorded", now.recorded, "queued_requests", now.queued_requests,
                       "queued_bytes", now.queued_bytes, "dropped", dropped);
}

PyObject* drain_notes(PyObject* self, PyObject* /*unused*/) {
  std::vector<Note> notes;
  if (!run([&] { notes = exporter_of(self).drain_notes(); })) return nullptr;
  return list_of(notes);
}

PyMethodDef methods[] = {
    {"start", start, METH_NOARGS, nullptr},
    {"begin_flush", begin_flush, METH_VARARGS, "begin_flush(deadline_ns, outcome) -> number"},
    {"wait", wait, METH_VARARGS, "wait(number, until_ns) -> whether it was done"},
    {"stop", stop, METH_VARARGS, "stop(until_ns) -> whether the thread has ended"},
    {"correct_at_exit", correct_at_exit, METH_VARARGS,
     "correct_at_exit(outcome, key, timeout_ns): sent, with the code as that attribute, if the "
     "process then exits with another code than 0. After stop()."},
    {"set_resource", set_resource, METH_VARARGS, "set_resource(epoch, resource)"},
    {"describe", describe, METH_VARARGS, "describe(info, other_losses)"},
    {"state", state, METH_NOARGS, "What it has come to, by name."},
    {"take_notes", drain_notes, METH_NOARGS, "[(kind, status, words)] since the last time"},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_exporter)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_exporter)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"otel_straggler._native.Exporter", sizeof(ExporterObject), 0,
                    Py_TPFLAGS_DEFAULT, slots};

// --- a single heartbeat, for tests ---------------------------------------------------------------

bool read_beat(PyObject* args, HeartbeatVocabulary& words, Heartbeat& beat, std::string& resource,
               std::string& info) {
  PyObject* given_words = nullptr;
  PyObject* resource_bytes = nullptr;
  PyObject* info_bytes = nullptr;
  PyObject* dropped = nullptr;
  PyObject* folded = nullptr;
  long long now_ns = 0;
  long long started_ns = 0;
  long long progress_ns = 0;
  long long step = 0;
  const char* section = nullptr;
  long long open_ns = 0;
  const char* phase = nullptr;
  const char* outcome = nullptr;
  if (PyArg_ParseTuple(args, "OSSLLLLzLssO!O!", &given_words, &resource_bytes, &info_bytes,
                       &now_ns, &started_ns, &progress_ns, &step, &section, &open_ns, &phase,
                       &outcome, &PyDict_Type, &dropped, &PyDict_Type, &folded) == 0) {
    return false;
  }
  beat.now_ns = now_ns;
  beat.started_ns = started_ns;
  beat.progress_ns = progress_ns;
  if (step != kNoStep) beat.step = step;
  if (section != nullptr) beat.open_section = {section, open_ns};
  beat.phase = phase;
  beat.outcome = outcome;
  return read_words(given_words, words) && read_bytes(resource_bytes, resource) &&
         read_bytes(info_bytes, info) && read_counts(dropped, beat.dropped) &&
         read_counts(folded, beat.folded);
}

PyObject* heartbeat(PyObject* /*module*/, PyObject* args) {
  try {
    HeartbeatVocabulary words;
    Heartbeat beat;
    std::string resource;
    std::string info;
    if (!read_beat(args, words, beat, resource, info)) return nullptr;
    const proto::Bytes body = HeartbeatWriter(std::move(words)).request(beat, resource, info);
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(body.data()),
                                     static_cast<Py_ssize_t>(body.size()));
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

PyMethodDef functions[] = {
    {"heartbeat", heartbeat, METH_VARARGS,
     "heartbeat(words, resource, info, now_ns, started_ns, progress_ns, step, section, open_ns, "
     "phase, outcome, dropped, folded) -> bytes"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_exporter(PyObject* module) {
  if (PyModule_AddFunctions(module, functions) != 0) return false;
  PyObject* const type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  const bool is_added = PyModule_AddObjectRef(module, "Exporter", type) == 0;
  Py_DECREF(type);
  return is_added;
}

}  // namespace otel_straggler::bindings
