// From a buffer of CUPTI's to events of ours. Reads what the buffer holds, follows no pointer.
#pragma once

#include <cstdint>
#include <cstring>

#include "otel_straggler/cupti/abi.hpp"

namespace otel_straggler::cupti {

// Something the GPU did: a kernel, a copy, a set, or a whole graph.
struct GpuEvent {
  Kind kind;
  std::uint32_t correlation;
  std::uint64_t start_ns;
  std::uint64_t end_ns;
  std::uint32_t device;
  std::uint32_t stream;
  const char* name;  // of a kernel; null: none
};

// A mark of ours, by the call that it was pushed around.
struct MarkEvent {
  std::uint64_t id;
  std::uint32_t correlation;
};

namespace walking {

template <typename Prefix>
Prefix read(const void* record) {
  Prefix prefix;
  std::memcpy(&prefix, record, sizeof(prefix));
  return prefix;
}

inline std::size_t smallest(Kind kind) {
  if (kind == kConcurrentKernel) return sizeof(KernelPrefix);
  return kind == kExternalCorrelation ? sizeof(ExternalCorrelation) : sizeof(MemoryPrefix);
}

// left: bytes of the buffer from the record on.
template <typename Sink>
void give(const void* record, std::size_t left, Sink& sink) {
  if (left < sizeof(Kind)) return;
  const auto kind = read<Kind>(record);
  if (left < smallest(kind)) return;
  if (kind == kConcurrentKernel) {
    const auto it = read<KernelPrefix>(record);
    sink.take(GpuEvent{kind, it.correlation, it.start, it.end, it.device, it.stream, it.name});
  } else if (kind == kExternalCorrelation) {
    const auto it = read<ExternalCorrelation>(record);
    if (it.external_kind == kExternalKindCustom2) {
      sink.take(MarkEvent{it.external_id, it.correlation});
    }
  } else if (kind == kMemcpy || kind == kMemset) {
    const auto it = read<MemoryPrefix>(record);
    sink.take(GpuEvent{kind, it.correlation, it.start, it.end, it.device, it.stream, nullptr});
  } else if (kind == kGraphTrace) {
    const auto it = read<GraphPrefix>(record);
    sink.take(GpuEvent{kind, it.correlation, it.start, it.end, it.device, it.stream, nullptr});
  }
}

}  // namespace walking

// Gives every event to the sink. kMaxLimitReached at the end of a sound buffer; anything else is
// where it stopped making sense.
template <typename Sink>
Result walk(Result (*next)(std::uint8_t*, std::size_t, void**), std::uint8_t* buffer,
            std::size_t valid_bytes, Sink& sink) {
  void* record = nullptr;
  for (;;) {
    const void* const before = record;
    const Result result = next(buffer, valid_bytes, &record);
    if (result != kSuccess) return result;
    if (record == nullptr || (before != nullptr && record <= before)) return kUnknown;
    const auto offset = static_cast<std::size_t>(static_cast<std::uint8_t*>(record) - buffer);
    if (offset >= valid_bytes) return kUnknown;
    walking::give(record, valid_bytes - offset, sink);
  }
}

}  // namespace otel_straggler::cupti
