// The recorder of this process as functions: enable, step, drain what has ended, inspect.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <vector>

#include "recording.hpp"

namespace otel_straggler::bindings {

Recording recording;
__thread ThreadStack* this_stack = nullptr;

namespace {

constexpr long long kLongestWaitNs = 86'400'000'000'000;  // a day: no collective takes so long
constexpr std::size_t kAlone = 1'024;  // fewer records are copied faster than the GIL comes back

Block* block = nullptr;

// Gives the thread's place back when the thread ends.
struct Leaving {
  std::unique_ptr<ThreadStack> stack;
  ~Leaving() {
    this_stack = nullptr;
    if (stack != nullptr && recording.recorder != nullptr) recording.recorder->leave_thread(*stack);
  }
};
thread_local Leaving leaving;

std::uint32_t thread_id() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

// In a child, before any Python runs: the memory may be a file of the parent's.
void leave_to_parent() {
  recording.gpu_timers->abandon();
  if (recording.recorder != nullptr) recording.recorder->abandon();
  this_stack = nullptr;
  static_cast<void>(leaving.stack.release());
}

bool replace_block(const char* path) {
  auto* opened = new (std::nothrow) Block();
  if (opened == nullptr) return PyErr_NoMemory() != nullptr;
  errno = path == nullptr ? opened->open() : opened->open(path);
  if (errno != 0) {
    delete opened;
    PyErr_SetFromErrno(PyExc_OSError);
    return false;
  }
  block = opened;
  recording.recorder = new Recorder(*opened);  // threads may end after the module has gone
  recording.handoff = new Handoff();
  return true;
}

bool is_ready() {
  if (recording.recorder != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "open_block() was not called");
  return false;
}

bool copy_id(const char* text, Py_ssize_t length, char (&id)[16]) {
  if (length != sizeof(id)) {
    PyErr_SetString(PyExc_ValueError, "a session id has 16 characters");
    return false;
  }
  std::memcpy(id, text, sizeof(id));
  return true;
}

PyObject* py_open_block(PyObject*, PyObject* args) {
  const char* path = nullptr;
  if (!PyArg_ParseTuple(args, "z", &path)) return nullptr;
  if (recording.recorder != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "there is a block already");
    return nullptr;
  }
  if (!replace_block(path)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* py_reset_after_fork(PyObject*, PyObject*) {
  leave_to_parent();
  delete block;  // unmaps it here; the parent has its own mapping
  block = nullptr;
  recording.recorder = nullptr;  // left behind: another thread of the parent may hold its lock
  recording.handoff = nullptr;
  recording.gpu_timers = new GpuTimers();  // the same
  recording.main_thread = kNoThread;
  ++recording.incarnation;
  Py_RETURN_NONE;
}

PyObject* py_enable(PyObject*, PyObject* args) {
  unsigned int epoch = 0;
  const char* text = nullptr;
  Py_ssize_t length = 0;
  char id[16];
  if (!PyArg_ParseTuple(args, "Is#", &epoch, &text, &length)) return nullptr;
  if (!is_ready() || !copy_id(text, length, id)) return nullptr;
  recording.recorder->enable(epoch, id, now_ns());
  Py_RETURN_NONE;
}

PyObject* py_disable(PyObject*, PyObject*) {
  if (recording.recorder != nullptr) recording.recorder->disable();
  Py_RETURN_NONE;
}

PyObject* py_begin_step(PyObject*, PyObject* args) {
  long long step = 0;
  long long began_ns = 0;
  unsigned long long span = 0;
  unsigned int epoch = 0;
  const char* text = nullptr;
  Py_ssize_t length = 0;
  char id[16];
  if (!PyArg_ParseTuple(args, "LKIs#L", &step, &span, &epoch, &text, &length, &began_ns)) {
    return nullptr;
  }
  if (!is_ready() || !copy_id(text, length, id)) return nullptr;
  recording.recorder->begin_step(thread_stack(), step, span, epoch, id, began_ns);
  if (GpuTimer* const timer = gpu_timer()) notify_step_begun(*timer, span, step);
  Py_RETURN_NONE;
}

PyObject* py_end_step(PyObject*, PyObject* args) {
  long long end_ns = 0;
  PyObject* error = nullptr;
  if (!PyArg_ParseTuple(args, "LO", &end_ns, &error)) return nullptr;
  if (!is_on()) Py_RETURN_NONE;
  std::optional<Record> record = recording.recorder->end_step(thread_stack(), end_ns, 0);
  if (!record) Py_RETURN_NONE;
  const ThreadStack& stack = thread_stack();
  if (GpuTimer* const timer = gpu_timer()) {
    notify_step_ended(*timer, *recording.recorder, stack, is_main(stack), record->span);
  }
  record->flags |= failure_of(record->span, error);
  thread_stack().record_end(end_ns);
  if (!keep(*record)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* py_set_phase(PyObject*, PyObject* args) {
  unsigned int phase = 0;
  if (!PyArg_ParseTuple(args, "I", &phase)) return nullptr;
  if (recording.recorder != nullptr) recording.recorder->set_phase(phase);
  Py_RETURN_NONE;
}

// add_wait(ns): this thread has waited so long in collectives. False if that cannot be; it then
// counts as nothing. A thread without sections has nothing that it could be a part of.
PyObject* py_add_wait(PyObject*, PyObject* waited) {
  if (!PyLong_CheckExact(waited)) Py_RETURN_FALSE;
  int overflow = 0;
  const long long waited_ns = PyLong_AsLongLongAndOverflow(waited, &overflow);
  if (overflow != 0 || waited_ns < 0 || waited_ns > kLongestWaitNs) Py_RETURN_FALSE;
  if (this_stack != nullptr) this_stack->add_wait(waited_ns);
  Py_RETURN_TRUE;
}

PyObject* py_next_span(PyObject*, PyObject*) {
  if (!is_ready()) return nullptr;
  return PyLong_FromUnsignedLongLong(recording.recorder->next_span(thread_stack()));
}

PyObject* py_begin_numbered(PyObject*, PyObject* args) {
  unsigned int section = 0;
  unsigned long long span = 0;
  PyObject* size = nullptr;
  Work work;
  if (!PyArg_ParseTuple(args, "IKO", &section, &span, &size)) return nullptr;
  if (!read_work(size, work)) return nullptr;
  if (!is_on()) Py_RETURN_NONE;
  ThreadStack& stack = thread_stack();
  recording.recorder->begin(stack, section, now_ns(), work, span);
  notify_begun(stack, span, section);
  Py_RETURN_NONE;
}

PyObject* py_open_here(PyObject*, PyObject*) {
  const std::size_t depth = this_stack == nullptr ? 0 : this_stack->depth();
  PyObject* frames = PyList_New(static_cast<Py_ssize_t>(depth));
  for (std::size_t at = 0; frames != nullptr && at < depth; ++at) {
    const Frame frame = this_stack->at(at);
    PyObject* one = Py_BuildValue(
        "KIIILKL", static_cast<unsigned long long>(frame.span), frame.section, frame.phase,
        frame.epoch, static_cast<long long>(frame.step),
        static_cast<unsigned long long>(frame.step_span), static_cast<long long>(frame.start_ns));
    if (one == nullptr || PyList_SetItem(frames, static_cast<Py_ssize_t>(at), one) != 0) {
      Py_CLEAR(frames);
    }
  }
  return frames;
}

PyObject* py_keep(PyObject*, PyObject* args) {
  const char* bytes = nullptr;
  Py_ssize_t length = 0;
  Record record;
  if (!PyArg_ParseTuple(args, "y#", &bytes, &length) || !is_ready()) return nullptr;
  if (length != sizeof(record)) {
    PyErr_SetString(PyExc_ValueError, "a record has 128 bytes");
    return nullptr;
  }
  std::memcpy(&record, bytes, sizeof(record));
  record.flags |= kHostOnly;
  if (!keep(record)) return nullptr;
  Py_RETURN_NONE;
}

// Where the exporter wants the same records.
PyObject* drain_for_both() {
  std::vector<Record> records;
  bool is_done = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    recording.handoff->drain(Reader::kPython, *recording.recorder, kRingCapacity, records);
  } catch (const std::exception&) {
    is_done = false;
  }
  Py_END_ALLOW_THREADS
  if (!is_done) return PyErr_NoMemory();
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(records.data()),
                                   static_cast<Py_ssize_t>(records.size() * sizeof(Record)));
}

PyObject* py_drain(PyObject*, PyObject*) {
  if (recording.recorder != nullptr) recording.recorder->record_alive(now_ns());
  if (recording.handoff != nullptr && !recording.handoff->is_for_python_alone()) {
    return drain_for_both();
  }
  const std::size_t max_records =
      recording.recorder == nullptr ? 0 : recording.recorder->ring().size();
  PyObject* bytes =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(max_records * sizeof(Record)));
  if (bytes == nullptr || max_records == 0) return bytes;
  auto* records = reinterpret_cast<Record*>(PyBytes_AsString(bytes));
  std::size_t taken = 0;
  if (max_records < kAlone) {
    taken = recording.recorder->drain(records, max_records);
  } else {
    Py_BEGIN_ALLOW_THREADS
    taken = recording.recorder->drain(records, max_records);
    Py_END_ALLOW_THREADS
  }
  if (taken == max_records) return bytes;
  PyObject* fewer = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(records),
                                              static_cast<Py_ssize_t>(taken * sizeof(Record)));
  Py_DECREF(bytes);
  return fewer;
}

PyObject* py_open_section(PyObject*, PyObject*) {
  if (recording.recorder == nullptr) Py_RETURN_NONE;
  const auto found = recording.recorder->open_section(static_cast<std::uint32_t>(::getpid()));
  if (!found) Py_RETURN_NONE;
  return Py_BuildValue("ILI", found->section, static_cast<long long>(found->start_ns),
                       found->phase);
}

PyObject* py_progress_ns(PyObject*, PyObject*) {
  if (!is_ready()) return nullptr;
  return PyLong_FromLongLong(recording.recorder->progress_ns());
}

PyObject* py_dropped(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(
      recording.recorder == nullptr ? 0 : recording.recorder->ring().dropped());
}

PyObject* py_share(PyObject*, PyObject* is_wanted) {
  const int answer = PyObject_IsTrue(is_wanted);
  if (answer < 0 || !is_ready()) return nullptr;
  recording.handoff->set_listening(Reader::kPython, answer != 0);
  Py_RETURN_NONE;
}

PyObject* py_pending(PyObject*, PyObject*) {
  return PyLong_FromSize_t(recording.recorder == nullptr ? 0 : recording.recorder->ring().size());
}

PyObject* py_threads(PyObject*, PyObject*) {
  Py_ssize_t living = 0;
  if (recording.recorder != nullptr) {
    const ThreadTable& threads = recording.recorder->threads();
    for (std::size_t at = 0; at < threads.used(); ++at) {
      living += threads[at].thread.load(std::memory_order_acquire) != kNoThread;
    }
  }
  return PyLong_FromSsize_t(living);
}

PyObject* py_set_limit(PyObject*, PyObject* args) {
  unsigned long long limit = 0;
  if (!PyArg_ParseTuple(args, "K", &limit) || !is_ready()) return nullptr;
  recording.recorder->set_limit(limit);
  Py_RETURN_NONE;
}

PyObject* set_callable(PyObject*& place, PyObject* given) {
  PyObject* before = place;
  place = nullptr;
  if (given != Py_None) {
    Py_INCREF(given);
    place = given;
  }
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

PyObject* py_when_full(PyObject*, PyObject* given) {
  return set_callable(recording.when_full, given);
}

PyObject* py_is_failure(PyObject*, PyObject* given) {
  return set_callable(recording.is_failure, given);
}

PyObject* py_publish_name(PyObject*, PyObject* args) {
  unsigned int table = 0;
  unsigned int number = 0;
  const char* text = nullptr;
  Py_ssize_t length = 0;
  if (!PyArg_ParseTuple(args, "IIy#", &table, &number, &text, &length)) return nullptr;
  const bool is_published =
      block != nullptr && block->publish(static_cast<NameTable>(table), number, text,
                                         static_cast<std::size_t>(length));
  return PyBool_FromLong(is_published);
}

PyMethodDef functions[] = {
    {"open_block", py_open_block, METH_VARARGS, nullptr},
    {"reset_after_fork", py_reset_after_fork, METH_NOARGS, nullptr},
    {"enable", py_enable, METH_VARARGS, nullptr},
    {"disable", py_disable, METH_NOARGS, nullptr},
    {"begin_step", py_begin_step, METH_VARARGS, nullptr},
    {"end_step", py_end_step, METH_VARARGS, nullptr},
    {"set_phase", py_set_phase, METH_VARARGS, nullptr},
    {"next_span", py_next_span, METH_NOARGS, nullptr},
    {"add_wait", py_add_wait, METH_O, nullptr},
    {"begin_numbered", py_begin_numbered, METH_VARARGS, nullptr},
    {"open_here", py_open_here, METH_NOARGS, nullptr},
    {"keep", py_keep, METH_VARARGS, nullptr},
    {"drain", py_drain, METH_NOARGS, nullptr},
    {"share", py_share, METH_O, nullptr},
    {"open_section", py_open_section, METH_NOARGS, nullptr},
    {"progress_ns", py_progress_ns, METH_NOARGS, nullptr},
    {"dropped", py_dropped, METH_NOARGS, nullptr},
    {"pending", py_pending, METH_NOARGS, nullptr},
    {"threads", py_threads, METH_NOARGS, nullptr},
    {"set_limit", py_set_limit, METH_VARARGS, nullptr},
    {"set_when_full", py_when_full, METH_O, nullptr},
    {"set_is_failure", py_is_failure, METH_O, nullptr},
    {"publish_name", py_publish_name, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

ThreadStack& enter_thread() {
  const std::uint32_t tid = thread_id();
  leaving.stack = recording.recorder->enter_thread(tid);
  this_stack = leaving.stack.get();
  if (tid == static_cast<std::uint32_t>(::getpid())) recording.main_thread = this_stack->number();
  return *this_stack;
}

bool keep(const Record& record) {
  Ring& ring = recording.recorder->ring();
  if (recording.recorder->keep(record)) return true;
  if (recording.when_full == nullptr) {
    ring.count_dropped();
    return true;
  }
  PyObject* answer = PyObject_CallNoArgs(recording.when_full);
  if (answer == nullptr) return false;
  Py_DECREF(answer);
  if (!ring.add(record)) ring.count_dropped();  // other threads have filled it again
  return true;
}

std::uint32_t failure_of(std::uint64_t span, PyObject* error) {
  if (error == Py_None) return 0;
  if (recording.is_failure == nullptr) return kFailed;
  PyObject* answer = PyObject_CallFunction(recording.is_failure, "KO",
                                           static_cast<unsigned long long>(span), error);
  const bool is_failure = answer == nullptr || PyObject_IsTrue(answer) != 0;
  Py_XDECREF(answer);
  PyErr_Clear();  // nothing raises into the user's code from here
  return is_failure ? kFailed : 0;
}

bool read_work(PyObject* size, Work& work) {
  if (size == Py_None) return true;
  if (!PyTuple_Check(size) || PyTuple_Size(size) < 2) {
    PyErr_SetString(PyExc_TypeError, "a work size is (microbatch, tokens) or None");
    return false;
  }
  work.microbatch = PyLong_AsLongLong(PyTuple_GetItem(size, 0));
  work.tokens = PyLong_AsLongLong(PyTuple_GetItem(size, 1));
  return PyErr_Occurred() == nullptr;
}

bool add_ring(PyObject* module) {
  recording.gpu_timers = new GpuTimers();  // threads may end after the module has gone
  return ::pthread_atfork(nullptr, nullptr, leave_to_parent) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace otel_straggler::bindings
