// What timing by events asks of the program around it: torch, through Python, or nothing.
#pragma once

#include "otel_straggler/events/driver.hpp"

namespace otel_straggler::events {

struct Host {
  // The stream that is current in this thread, of that device. False: not known. Null: the legacy
  // default stream.
  bool (*current_stream)(void* user, int device, Stream& stream) noexcept = nullptr;
  // Around calls of the driver that may wait, where the queue of the GPU is full: lets other
  // threads of the program go on meanwhile. Both or none.
  void* (*release_lock)(void* user) noexcept = nullptr;
  void (*reacquire_lock)(void* user, void* token) noexcept = nullptr;
  void* user = nullptr;
};

}  // namespace otel_straggler::events
