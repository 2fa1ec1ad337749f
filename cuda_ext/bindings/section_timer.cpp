// SectionTimer: the base of sections. What a `with` statement costs is decided here.
//
// A plain method is bound again for every `with`, twice, which takes as long as all the rest. So
// __enter__ and __exit__ are descriptors of our own that bind once and give that again. An object
// then refers to itself; one that is used only a few times is not made to.
#include <cstddef>

#include "recording.hpp"
#include "section_timer.hpp"
#include "structmember.h"

namespace otel_straggler::bindings {
namespace {

constexpr unsigned kUsesBeforeKeeping = 16;

struct Timer {
  PyObject_HEAD
  PyObject* name;
  PyObject* kind;
  PyObject* enter;  // __enter__ and __exit__, bound
  PyObject* exit;
  PyObject* weak_references;
  unsigned section;
  unsigned uses;
  unsigned entries;  // counted where they are sampled
  bool is_sampled;
};

std::uint32_t sample_every = 1;  // of the executions of sections that are sampled

Timer* timer(PyObject* self) { return reinterpret_cast<Timer*>(self); }

void begin(std::uint32_t section, const Work& work) {
  ThreadStack& stack = thread_stack();
  const std::uint64_t span = recording.recorder->next_span(stack);
  recording.recorder->begin(stack, section, now_ns(), work, span);
  notify_begun(stack, span, section);
}

// Whether the next execution of a section is to be timed.
bool takes_turn(Timer& timer) {
  return !timer.is_sampled || timer.entries++ % sample_every == 0;
}

void begin_if_turn(PyObject* self, const Work& work) {
  if (!is_on()) return;
  if (takes_turn(*timer(self))) {
    begin(timer(self)->section, work);
  } else {
    thread_stack().skip(self);
  }
}

PyObject* timer_enter(PyObject* self, PyObject*) {
  begin_if_turn(self, Work{});
  Py_INCREF(self);
  return self;
}

PyObject* end_slowly(ThreadStack& stack, std::uint32_t section, std::int64_t end_ns,
                     GpuTimer* timer, PyObject* error) {
  Record record;
  if (!recording.recorder->end(stack, section, end_ns, 0, record)) Py_RETURN_NONE;
  stack.record_end(end_ns);
  notify_ended(timer, stack, record.span);
  record.flags |= failure_of(record.span, error);
  if (!keep(record)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* timer_exit(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  GpuTimer* const gpu = gpu_timer();
  const std::int64_t end_ns = now_ns();
  ThreadStack* const stack = this_stack;
  if (stack == nullptr) Py_RETURN_NONE;
  const std::uint32_t section = timer(self)->section;
  if (stack->has_skips() && stack->end_skip(self, section)) Py_RETURN_NONE;
  if (stack->depth() == 0) Py_RETURN_NONE;
  const bool is_well = count < 1 || args[0] == Py_None;
  const auto notify = [&](std::uint64_t span) { notify_ended(gpu, *stack, span); };
  if (is_well && recording.recorder->end_at_once(*stack, section, end_ns, notify)) {
    stack->record_end(end_ns);
    Py_RETURN_NONE;
  }
  return end_slowly(*stack, section, end_ns, gpu, is_well ? Py_None : args[0]);
}

PyObject* timer_begin(PyObject* self, PyObject* size) {
  Work work;
  if (!read_work(size, work)) return nullptr;
  begin_if_turn(self, work);
  Py_RETURN_NONE;
}

PyObject* timer_sample(PyObject* self, PyObject*) {
  timer(self)->is_sampled = true;
  Py_RETURN_NONE;
}

PyObject* timer_begin_detached(PyObject* self, PyObject*) {
  if (!is_on() || !takes_turn(*timer(self))) Py_RETURN_NONE;
  ThreadStack& stack = thread_stack();
  Record begun = recording.recorder->begin_detached(stack, timer(self)->section, now_ns(),
                                                    recording.recorder->next_span(stack));
  begun.sequence = recording.incarnation;
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&begun), sizeof(begun));
}

PyObject* timer_end_detached(PyObject*, PyObject* const* args, Py_ssize_t count) {
  const std::int64_t end_ns = now_ns();
  Record record;
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "end_detached(begun, error) takes two arguments");
    return nullptr;
  }
  if (args[0] == Py_None || recording.recorder == nullptr) Py_RETURN_NONE;
  if (!PyBytes_Check(args[0]) || PyBytes_Size(args[0]) != sizeof(record)) {
    PyErr_SetString(PyExc_TypeError, "end_detached() ends what begin_detached() has given");
    return nullptr;
  }
  std::memcpy(&record, PyBytes_AsString(args[0]), sizeof(record));
  if (record.sequence != recording.incarnation) Py_RETURN_NONE;
  record.end_ns = end_ns;
  record.sequence = 0;
  thread_stack().record_end(end_ns);
  record.flags |= failure_of(record.span, args[1]);
  if (!keep(record)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* timer_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* name = nullptr;
  PyObject* kind = nullptr;
  unsigned section = 0;
  if (!PyArg_ParseTuple(args, "OOI", &name, &kind, &section)) return nullptr;
  PyObject* self = PyType_GenericAlloc(type, 0);
  if (self == nullptr) return nullptr;
  Py_INCREF(name);
  Py_INCREF(kind);
  timer(self)->name = name;
  timer(self)->kind = kind;
  timer(self)->section = section;
  return self;
}

int timer_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(timer(self)->name);
  Py_VISIT(timer(self)->kind);
  Py_VISIT(timer(self)->enter);
  Py_VISIT(timer(self)->exit);
  return 0;
}

int timer_clear(PyObject* self) {
  Py_CLEAR(timer(self)->enter);
  Py_CLEAR(timer(self)->exit);
  return 0;
}

void timer_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (timer(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  timer_clear(self);
  Py_CLEAR(timer(self)->name);
  Py_CLEAR(timer(self)->kind);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef enter_method = {"__enter__", timer_enter, METH_NOARGS, nullptr};
PyMethodDef exit_method = {
    "__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(timer_exit)), METH_FASTCALL,
    nullptr};

// The method of an object: bound now, or long ago.
PyObject* bound(PyObject* self, PyMethodDef& method, PyObject*& kept) {
  if (kept == nullptr) {
    PyObject* made = PyCFunction_NewEx(&method, self, nullptr);
    if (made == nullptr || ++timer(self)->uses < kUsesBeforeKeeping) return made;
    kept = made;
  }
  Py_INCREF(kept);
  return kept;
}

PyTypeObject* timer_type = nullptr;

bool is_timer(PyObject* object) {
  return object != nullptr && PyObject_TypeCheck(object, timer_type) != 0;
}

PyObject* give_descriptor(PyObject* descriptor) {
  Py_INCREF(descriptor);
  return descriptor;
}

PyObject* get_enter(PyObject* descriptor, PyObject* self, PyObject*) {
  if (!is_timer(self)) return give_descriptor(descriptor);
  return bound(self, enter_method, timer(self)->enter);
}

PyObject* get_exit(PyObject* descriptor, PyObject* self, PyObject*) {
  if (!is_timer(self)) return give_descriptor(descriptor);
  return bound(self, exit_method, timer(self)->exit);
}

// SectionTimer.__enter__(self), as one may write in a subclass.
PyObject* call_unbound(PyObject* args, descrgetfunc get) {
  PyObject* self = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : nullptr;
  if (!is_timer(self)) {
    PyErr_SetString(PyExc_TypeError, "a SectionTimer is needed");
    return nullptr;
  }
  PyObject* method = get(nullptr, self, nullptr);
  PyObject* rest = method == nullptr ? nullptr : PyTuple_GetSlice(args, 1, PyTuple_Size(args));
  PyObject* answer = rest == nullptr ? nullptr : PyObject_CallObject(method, rest);
  Py_XDECREF(rest);
  Py_XDECREF(method);
  return answer;
}

PyObject* call_enter(PyObject*, PyObject* args, PyObject*) { return call_unbound(args, get_enter); }
PyObject* call_exit(PyObject*, PyObject* args, PyObject*) { return call_unbound(args, get_exit); }

PyMethodDef methods[] = {
    {"begin", timer_begin, METH_O, nullptr},
    {"sample", timer_sample, METH_NOARGS, nullptr},
    {"begin_detached", timer_begin_detached, METH_NOARGS, nullptr},
    {"end_detached", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(timer_end_detached)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"name", T_OBJECT_EX, offsetof(Timer, name), READONLY, nullptr},
    {"kind", T_OBJECT_EX, offsetof(Timer, kind), READONLY, nullptr},
    {"section", T_UINT, offsetof(Timer, section), READONLY, nullptr},
    {"entries", T_UINT, offsetof(Timer, entries), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Timer, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyType_Slot timer_slots[] = {
    {Py_tp_new, slot(timer_new)},           {Py_tp_dealloc, slot(timer_dealloc)},
    {Py_tp_traverse, slot(timer_traverse)}, {Py_tp_clear, slot(timer_clear)},
    {Py_tp_methods, methods},               {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec timer_spec = {"otel_straggler._native.SectionTimer", sizeof(Timer), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                          timer_slots};

PyType_Slot enter_slots[] = {
    {Py_tp_descr_get, slot(get_enter)}, {Py_tp_call, slot(call_enter)}, {0, nullptr}};
PyType_Spec enter_spec = {"otel_straggler._native.Enter", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT,
                          enter_slots};

PyType_Slot exit_slots[] = {
    {Py_tp_descr_get, slot(get_exit)}, {Py_tp_call, slot(call_exit)}, {0, nullptr}};
PyType_Spec exit_spec = {"otel_straggler._native.Exit", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT,
                         exit_slots};

bool add_descriptor(PyObject* type, const char* name, PyType_Spec& spec) {
  PyObject* descriptor_type = PyType_FromSpec(&spec);
  PyObject* descriptor = descriptor_type == nullptr ? nullptr : PyObject_CallNoArgs(descriptor_type);
  const bool is_set = descriptor != nullptr && PyObject_SetAttrString(type, name, descriptor) == 0;
  Py_XDECREF(descriptor);
  Py_XDECREF(descriptor_type);
  return is_set;
}

}  // namespace

bool is_section(PyObject* object) { return is_timer(object); }

bool set_sampling(unsigned every) {
  if (every == 0) return false;
  sample_every = every;
  return true;
}

bool add_section_timer(PyObject* module) {
  PyObject* type = PyType_FromSpec(&timer_spec);
  if (type == nullptr) return false;
  timer_type = reinterpret_cast<PyTypeObject*>(type);
  return add_descriptor(type, "__enter__", enter_spec) &&
         add_descriptor(type, "__exit__", exit_spec) &&
         PyModule_AddObjectRef(module, "SectionTimer", type) == 0;
}

}  // namespace otel_straggler::bindings
