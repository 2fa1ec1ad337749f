// The CUDA driver's functions that timing by events needs, found in the library that the process
// has loaded. No header of NVIDIA's is used; no context is made, and nothing is initialised.
//
// The driver's functions, not the runtime's: an error that they give is not what torch finds when
// it asks for the last error.
#pragma once

#include <dlfcn.h>

#include <string>

namespace otel_straggler::events {

using Code = int;  // CUresult
using Context = struct OpaqueContext*;
using Stream = struct OpaqueStream*;  // null: the legacy default stream of the current context
using Event = struct OpaqueEvent*;

inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidValue = 1;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kNotInitialized = 3;
inline constexpr Code kDeinitialized = 4;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kInvalidContext = 201;
inline constexpr Code kInvalidHandle = 400;
inline constexpr Code kNotReady = 600;
inline constexpr Code kIllegalAddress = 700;
inline constexpr Code kContextIsDestroyed = 709;
inline constexpr Code kFirstOfCapture = 900;  // something would have disturbed the capture of a
inline constexpr Code kLastOfCapture = 908;   // graph, or was a part of one

inline constexpr unsigned kTimingEvent = 0;  // CU_EVENT_DEFAULT
inline constexpr int kNotCapturing = 0;
inline constexpr int kRelaxedCapture = 2;

struct Api {
  Code (*get_version)(int*) = nullptr;
  Code (*get_current)(Context*) = nullptr;
  Code (*get_device)(int*) = nullptr;
  Code (*push_current)(Context) = nullptr;
  Code (*pop_current)(Context*) = nullptr;
  Code (*create)(Event*, unsigned) = nullptr;
  Code (*record)(Event, Stream) = nullptr;
  Code (*query)(Event) = nullptr;
  Code (*elapsed)(float*, Event, Event) = nullptr;
  Code (*is_capturing)(Stream, int*) = nullptr;
  Code (*exchange_capture_mode)(int*) = nullptr;
};

// What a code means for the caller.
enum class Meaning {
  kFine,
  kWait,     // the GPU has not come so far
  kCapture,  // a graph is being captured
  kOneRun,   // this run cannot be timed: its stream is gone, there is no memory
  kEnd,      // of the process's use of the GPU, or of the context
};

inline Meaning meaning_of(Code code) {
  if (code == kSuccess) return Meaning::kFine;
  if (code == kNotReady) return Meaning::kWait;
  if (code >= kFirstOfCapture && code <= kLastOfCapture) return Meaning::kCapture;
  if (code == kInvalidValue || code == kOutOfMemory || code == kInvalidHandle) {
    return Meaning::kOneRun;
  }
  return Meaning::kEnd;
}

// Cause and remedy of what ends timing, as text for the operator of the job.
inline const char* cause_and_remedy(Code code) {
  switch (code) {
    case kOutOfMemory:
      return "the GPU or the host has no memory left for events";
    case kNotInitialized:
    case kDeinitialized:
      return "CUDA is not in use yet, or not any more; time sections while the GPU is used";
    case kNoDevice:
      return "there is no GPU that this process may use; look at CUDA_VISIBLE_DEVICES";
    case kInvalidContext:
    case kContextIsDestroyed:
      return "the CUDA context has gone (a device reset?); start timing again once the GPU is used";
    case kInvalidHandle:
      return "the driver does not know this stream; it was destroyed, or is of another context";
    case 214:
    case 220:
      return "the GPU reports a hardware error that it could not correct; look at dmesg for an Xid";
    case kIllegalAddress:
    case 702:
    case 710:
    case 716:
    case 719:
      return "a kernel of the program failed, and the GPU is lost to this process; find the kernel "
             "with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer";
    default:
      return "unexpected; please report it with the versions of driver, CUDA and torch";
  }
}

inline std::string call_failed(const char* function, Code code) {
  return std::string(function) + " gave " + std::to_string(code) + ": " + cause_and_remedy(code);
}

// A driver that is used is never closed.
struct Driver {
  Api api{};
  int version = 0;     // 13000: CUDA 13.0
  std::string reason;  // why it is not usable; empty: it is
};

namespace loading {

template <typename Function>
bool get(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// The name of the first function that is missing; null if all are there. Names without an ending
// have had one form only, or the old one is kept forever.
inline const char* get_all(void* library, Api& api) {
  const char* name = nullptr;
  const auto needed = [&](const char* this_one, auto& function) {
    name = this_one;
    return get(library, name, function);
  };
  const bool is_whole = needed("cuDriverGetVersion", api.get_version) &&
                        needed("cuCtxGetCurrent", api.get_current) &&
                        needed("cuCtxGetDevice", api.get_device) &&
                        needed("cuCtxPushCurrent_v2", api.push_current) &&
                        needed("cuCtxPopCurrent_v2", api.pop_current) &&
                        needed("cuEventCreate", api.create) &&
                        needed("cuEventRecord", api.record) &&
                        needed("cuEventQuery", api.query) &&
                        (get(library, "cuEventElapsedTime_v2", api.elapsed) ||
                         needed("cuEventElapsedTime", api.elapsed)) &&
                        needed("cuStreamIsCapturing", api.is_capturing) &&
                        needed("cuThreadExchangeStreamCaptureMode", api.exchange_capture_mode);
  return is_whole ? nullptr : name;
}

}  // namespace loading

// path: empty: libcuda.so.1; a name without a slash must have been loaded by others, since a
// process that does not use the GPU is left as it is; a path is loaded (for tests).
// Never fails otherwise than by a reason.
inline Driver load_driver(const std::string& path) {
  Driver driver;
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  const int more = name.find('/') == std::string::npos ? RTLD_NOLOAD : 0;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | more);
  if (library == nullptr) {
    driver.reason = "no CUDA driver is loaded in this process (" + name +
                    "); there is no GPU, or CUDA has not been used yet";
    return driver;
  }
  if (const char* missing = loading::get_all(library, driver.api)) {
    driver.reason = std::string("the CUDA driver has no ") + missing +
                    "; expected that of CUDA 11 or newer";
    return driver;
  }
  const Code code = driver.api.get_version(&driver.version);
  if (code != kSuccess) driver.reason = call_failed("cuDriverGetVersion", code);
  return driver;
}

}  // namespace otel_straggler::events
