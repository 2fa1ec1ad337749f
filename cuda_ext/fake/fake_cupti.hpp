// How tests drive the fake libcupti (fake_cupti.cpp): a GPU that runs what a test schedules.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Forgets everything, as in a fresh process; reads FAKE_CUPTI_FAIL ("cuptiActivityEnable:999,...")
// and FAKE_CUPTI_VERSION (130000) again.
void fake_reset(void);
void fake_fail(const char* function, int code);  // code 0: no longer

// Names of settings: "version" (18, 24, ... decides the size of records), "correlation" (the next
// id less one), "zero_every" (each nth kernel has no timestamps), "backward_every" (ends before it
// starts), "shuffle" (records come out of a window of so many, at random), "hold" (nothing ends
// until it is 0 again), "late" (full buffers are kept for so many flushes), "drop_every",
// "other_subscriber", "per_thread" (buffers), "captured_untraced" (graphs were captured while there
// were no records: their kernels have none).
void fake_set(const char* setting, std::uint64_t value);
std::uint64_t fake_get(const char* count);  // see fake_cupti.cpp

// From the calling thread. The answer is the correlation id.
std::uint32_t fake_launch(const char* name, std::uint64_t duration_ns, std::uint32_t device,
                          std::uint32_t stream);
std::uint32_t fake_launch_at(const char* name, std::uint64_t start_ns, std::uint64_t end_ns,
                             std::uint32_t device, std::uint32_t stream);
std::uint32_t fake_launch_graph(const char* const* names, std::size_t count,
                                std::uint64_t duration_ns, std::uint32_t device,
                                std::uint32_t stream);
std::uint32_t fake_memcpy(std::uint64_t bytes, std::uint64_t duration_ns);
std::uint32_t fake_call(std::uint32_t driver_call);  // some other driver call
void fake_skip(std::uint32_t calls);  // so many calls that are not traced

// Another client registers its callbacks, takes what is delivered, and may be asked how much.
void fake_foreign_takeover(void);
std::uint64_t fake_foreign_bytes(void);

int cuDriverGetVersion(int* version);
}
