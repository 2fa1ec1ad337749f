// From a buffer of CUPTI's to events of ours. Reads what the buffer holds, follows no pointer.
#pragma once

#include <cstddef>
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

template <typename Field>
Field field(const void* record, std::size_t offset) {
  Field field;
  std::memcpy(&field, static_cast<const std::uint8_t*>(record) + offset, sizeof(field));
  return field;
}

// Field by field: a prefix is much longer than what is wanted of it.
template <typename Prefix>
GpuEvent event_of(Kind kind, const void* record) {
  GpuEvent event{};
  event.kind = kind;
  event.correlation = field<std::uint32_t>(record, offsetof(Prefix, correlation));
  event.start_ns = field<std::uint64_t>(record, offsetof(Prefix, start));
  event.end_ns = field<std::uint64_t>(record, offsetof(Prefix, end));
  event.device = field<std::uint32_t>(record, offsetof(Prefix, device));
  event.stream = field<std::uint32_t>(record, offsetof(Prefix, stream));
  return event;
}

inline std::size_t smallest(Kind kind) {
  if (kind == kConcurrentKernel) return sizeof(KernelPrefix);
  return kind == kExternalCorrelation ? sizeof(ExternalCorrelation) : sizeof(MemoryPrefix);
}

// left: bytes of the buffer from the record on.
template <typename Sink>
void give(const void* record, std::size_t left, Sink& sink) {
  if (left < sizeof(Kind)) return;
  const auto kind = field<Kind>(record, 0);
  if (left < smallest(kind)) return;
  if (kind == kConcurrentKernel) {
    GpuEvent event = event_of<KernelPrefix>(kind, record);
    event.name = field<const char*>(record, offsetof(KernelPrefix, name));
    sink.observe(event);
  } else if (kind == kExternalCorrelation) {
    using Its = ExternalCorrelation;
    if (field<std::uint32_t>(record, offsetof(Its, external_kind)) != kExternalKindCustom2) return;
    sink.observe(MarkEvent{field<std::uint64_t>(record, offsetof(Its, external_id)),
                           field<std::uint32_t>(record, offsetof(Its, correlation))});
  } else if (kind == kMemcpy || kind == kMemset) {
    sink.observe(event_of<MemoryPrefix>(kind, record));
  } else if (kind == kGraphTrace) {
    sink.observe(event_of<GraphPrefix>(kind, record));
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
