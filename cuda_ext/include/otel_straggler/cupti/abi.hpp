// The part of CUPTI's binary interface that we use, restated: numbers and offsets, the same in all
// versions from 11.8 to 13.5. `make cupti-headers` compares them with NVIDIA's own headers.
//
// Records grow from version to version: read only what is here, and step from one to the next only
// with cuptiActivityGetNextRecord.
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_straggler::cupti {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kMaxLimitReached = 12;
inline constexpr Result kNotCompatible = 14;
inline constexpr Result kNotInitialized = 15;
inline constexpr Result kInvalidKind = 21;
inline constexpr Result kNotSupported = 27;
inline constexpr Result kVirtualizedDevice = 33;
inline constexpr Result kInsufficientPrivileges = 35;
inline constexpr Result kMultipleSubscribers = 39;
inline constexpr Result kVirtualizedDevicePrivileges = 40;
inline constexpr Result kConfidentialComputing = 41;
inline constexpr Result kCmpDeviceNotSupported = 42;
inline constexpr Result kMigDevice = 43;
inline constexpr Result kUnknown = 999;

// Kinds of records.
using Kind = std::uint32_t;
inline constexpr Kind kMemcpy = 1;
inline constexpr Kind kMemset = 2;
inline constexpr Kind kDriver = 4;
inline constexpr Kind kConcurrentKernel = 10;
inline constexpr Kind kExternalCorrelation = 39;
inline constexpr Kind kGraphTrace = 51;

// An attribute of all tracing, and its type; a kind of external correlation.
inline constexpr std::uint32_t kZeroedOutBuffers = 5;     // uint8_t: 1, we zero them
inline constexpr std::uint32_t kExternalKindCustom2 = 5;  // of marks; Kineto has 0 and 1

// The callback interface.
inline constexpr std::uint32_t kDriverDomain = 1;
inline constexpr std::uint32_t kEnter = 0;
inline constexpr std::uint32_t kGetVersionCall = 2;  // cuDriverGetVersion
// Driver calls that launch: kernels, cooperative kernels, graphs, and the ex forms, each for both
// default streams. The graph launches stand for any number of kernels.
inline constexpr std::uint32_t kLaunchCalls[] = {307, 442, 477, 478, 514, 515, 652, 653};
inline constexpr bool is_graph_launch(std::uint32_t call) { return call == 514 || call == 515; }
inline constexpr bool is_launch(std::uint32_t call) {
  for (const std::uint32_t one : kLaunchCalls) {
    if (one == call) return true;
  }
  return false;
}
// Calls have numbers up to 759 in CUDA 13.0; what a version does not have it refuses.
inline constexpr std::uint32_t kHighestDriverCall = 1'023;

inline constexpr std::uint32_t kOldestVersion = 18;          // 11.8, 12.0 and 12.1 all say so
inline constexpr std::uint32_t kDeclineVersion = 27;  // from here no buffer is a lawful answer
inline constexpr std::uint32_t kNewestTried = 130'500;

struct KernelPrefix {
  Kind kind;
  std::uint32_t skipped_4[3];
  std::uint64_t start;  // ns, 0: none
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t skipped_52[10];
  std::uint32_t correlation;
  std::uint64_t grid;
  const char* name;
  std::uint64_t skipped_112[4];
  std::uint64_t graph_node;
  std::uint32_t skipped_152;
  std::uint32_t graph;
};
static_assert(offsetof(KernelPrefix, start) == 16 && offsetof(KernelPrefix, completed) == 32);
static_assert(offsetof(KernelPrefix, device) == 40 && offsetof(KernelPrefix, stream) == 48);
static_assert(offsetof(KernelPrefix, correlation) == 92 && offsetof(KernelPrefix, name) == 104);
static_assert(offsetof(KernelPrefix, graph_node) == 144 && offsetof(KernelPrefix, graph) == 156);
static_assert(sizeof(KernelPrefix) == 160);

// Memory copies and memory sets: alike in the fields that we read.
struct MemoryPrefix {
  Kind kind;
  std::uint32_t what;  // a byte of the kind of copy, or the value set
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
};
static_assert(offsetof(MemoryPrefix, start) == 16 && offsetof(MemoryPrefix, device) == 32);
static_assert(offsetof(MemoryPrefix, correlation) == 44);

struct GraphPrefix {
  Kind kind;
  std::uint32_t correlation;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t graph;
  std::uint32_t context;
  std::uint32_t stream;
};
static_assert(offsetof(GraphPrefix, device) == 24 && offsetof(GraphPrefix, graph) == 28);
static_assert(offsetof(GraphPrefix, stream) == 36);

struct ExternalCorrelation {
  Kind kind;
  std::uint32_t external_kind;
  std::uint64_t external_id;
  std::uint32_t correlation;
  std::uint32_t reserved;
};
static_assert(sizeof(ExternalCorrelation) == 24);
static_assert(offsetof(ExternalCorrelation, correlation) == 16);

struct CallbackData {
  std::uint32_t site;  // kEnter or 1
  std::uint32_t skipped_4;
  const char* function;
  const void* arguments;
  void* answer;
  const char* symbol;
  void* context;
  std::uint32_t context_number;
  std::uint32_t skipped_52;
  std::uint64_t* correlation_data;
  std::uint32_t correlation;
};
static_assert(offsetof(CallbackData, correlation) == 64);

using Context = void*;
using Subscriber = void*;
using RequestBuffer = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using BufferCompleted = void (*)(Context context, std::uint32_t stream, std::uint8_t* buffer,
                                 std::size_t size, std::size_t valid_bytes);
using OnCall = void (*)(void* user, std::uint32_t domain, std::uint32_t call, const void* data);
using Clock = std::uint64_t (*)();

// The functions of a libcupti. The last block is null where the version has none.
struct Api {
  Result (*get_version)(std::uint32_t*);
  Result (*get_result_string)(Result, const char**);
  Result (*register_callbacks)(RequestBuffer, BufferCompleted);
  Result (*enable)(Kind);
  Result (*disable)(Kind);
  Result (*set_attribute)(std::uint32_t, std::size_t*, void*);
  Result (*flush_all)(std::uint32_t);
  Result (*get_next_record)(std::uint8_t*, std::size_t, void**);
  Result (*get_dropped)(Context, std::uint32_t, std::size_t*);
  Result (*subscribe)(Subscriber*, OnCall, void*);
  Result (*unsubscribe)(Subscriber);
  Result (*enable_callback)(std::uint32_t on, Subscriber, std::uint32_t domain,
                            std::uint32_t call);
  Result (*push_external)(std::uint32_t kind, std::uint64_t id);
  Result (*pop_external)(std::uint32_t kind, std::uint64_t* id);

  Result (*enable_driver_api)(std::uint32_t call, std::uint8_t on);
  Result (*register_clock)(Clock);
};

}  // namespace otel_straggler::cupti
