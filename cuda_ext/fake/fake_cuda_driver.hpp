// How tests drive the fake CUDA driver (fake_cuda_driver.cpp): a GPU that runs what a test
// schedules, by a clock that a test advances.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Forgets everything, as in a fresh process; the calling thread has no context then.
void fake_cuda_reset(void);

// A context is made; a thread makes one current (null: none). Gone: the driver knows it no more.
void* fake_cuda_context(int device);
void fake_cuda_set_current(void* context);
void fake_cuda_destroy(void* context);
// A stream of a context. Like torch's, it does not wait for the legacy stream; `is_blocking`: does.
void* fake_cuda_stream(void* context, int is_blocking);
void fake_cuda_destroy_stream(void* stream);

// Work on a stream (null: the legacy one of the current context), and time that passes.
void fake_cuda_launch(void* stream, std::uint64_t duration_ns);
void fake_cuda_advance(std::uint64_t ns);
// A graph is being captured on this stream by this thread from now on, or not any more.
void fake_cuda_capture(void* stream, int on);

void fake_cuda_fail(const char* function, int code);  // code 0: no longer
// A kernel has failed: from now on the driver gives this code for whatever is about the GPU.
void fake_cuda_break(int code);

// cuDriverGetVersion is this one from now on: that of a libcupti, which sees the call.
void fake_cuda_trace_version(int (*traced)(int*));

// Settings: "not_ready" (each event that is done says so only after so many queries), "full" (the
// queue of the GPU: a thread that records an event waits until it is 0 again), "backward" (times
// between events are below zero), "busy" (streams never wait for work, and have done all at once:
// the clock does not matter).
void fake_cuda_set(const char* setting, std::uint64_t value);
// Calls of a function by its name; or "events" (made), "captured" (records that became a part of a
// graph), "spoiled" (captures that another caller has ended), "in_child" (calls after a fork),
// "inside" (threads that wait in the driver).
std::uint64_t fake_cuda_get(const char* count);

// Of the driver, for what code that is not ours does.
int cuEventCreate(void** event, unsigned flags);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
}
