// Finding libcupti and its functions. Nothing of it is called before a CUDA driver is there:
// without one, libcupti 13.2 ends the process at every call.
#pragma once

#include <dlfcn.h>

#include <string>

#include "otel_straggler/cupti/abi.hpp"
#include "otel_straggler/cupti/reasons.hpp"

namespace otel_straggler::cupti {

struct LibraryRequest {
  std::string path;    // this file and no other (OTEL_STRAGGLER_CUPTI); empty: search
  std::string folder;  // of torch's wheel of CUPTI; empty: none
  std::string driver = "libcuda.so.1";  // by this name the driver is known to the loader
};

// A library that is used is never closed.
struct Library {
  Api api{};
  std::uint32_t version = 0;
  std::string path;
  bool is_untried = false;  // newer than all that were tried; used all the same
  std::string reason;       // why it is not usable; empty: it is
  int (*get_driver_version)(int*) = nullptr;  // of the driver; the cheapest call there is
};

namespace loading {

inline constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"};

inline void* open(const std::string& name, int more) {
  return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | more);
}

// The copy that torch has loaded comes first: a second one would be a rival of it.
inline void* find(const LibraryRequest& request) {
  if (!request.path.empty()) return open(request.path, RTLD_NODELETE);
  for (const char* name : kNames) {
    if (void* found = open(name, RTLD_NOLOAD | RTLD_NODELETE)) return found;
  }
  for (const char* name : kNames) {
    if (request.folder.empty()) break;
    if (void* found = open(request.folder + "/" + name, RTLD_NODELETE)) return found;
  }
  for (const char* name : kNames) {
    if (void* found = open(name, RTLD_NODELETE)) return found;
  }
  return nullptr;
}

template <typename Function>
bool get(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// The name of the first function that is missing; null if all are there.
inline const char* get_all(void* library, Api& api) {
  get(library, "cuptiActivityEnableDriverApi", api.enable_driver_api);
  get(library, "cuptiActivityRegisterTimestampCallback", api.register_clock);
  const char* name = nullptr;
  const auto needed = [&](const char* this_one, auto& function) {
    name = this_one;
    return get(library, name, function);
  };
  const bool is_whole =
      needed("cuptiGetVersion", api.get_version) &&
      needed("cuptiGetResultString", api.get_result_string) &&
      needed("cuptiActivityRegisterCallbacks", api.register_callbacks) &&
      needed("cuptiActivityEnable", api.enable) && needed("cuptiActivityDisable", api.disable) &&
      needed("cuptiActivitySetAttribute", api.set_attribute) &&
      needed("cuptiActivityFlushAll", api.flush_all) &&
      needed("cuptiActivityGetNextRecord", api.get_next_record) &&
      needed("cuptiActivityGetNumDroppedRecords", api.get_dropped) &&
      needed("cuptiSubscribe", api.subscribe) && needed("cuptiUnsubscribe", api.unsubscribe) &&
      needed("cuptiEnableCallback", api.enable_callback) &&
      needed("cuptiActivityPushExternalCorrelationId", api.push_external) &&
      needed("cuptiActivityPopExternalCorrelationId", api.pop_external);
  return is_whole ? nullptr : name;
}

inline std::string why_not_opened(const LibraryRequest& request) {
  const char* words = ::dlerror();
  const std::string detail = words == nullptr ? "" : std::string(" (") + words + ")";
  if (!request.path.empty()) {
    return "OTEL_STRAGGLER_CUPTI names a library that cannot be loaded" + detail +
           "; unset it to use the one that torch brings";
  }
  return "no libcupti was found" + detail +
         "; install torch for CUDA, or put CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH";
}

inline std::string path_of(const Api& api) {
  Dl_info info{};
  const bool is_known = ::dladdr(reinterpret_cast<void*>(api.get_version), &info) != 0;
  return is_known && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace loading

// Never fails otherwise than by a reason. Cost: 16 us if torch has loaded one, else some ms.
inline Library load_library(const LibraryRequest& request) {
  Library library;
  void* const driver = loading::open(request.driver, RTLD_NOLOAD);
  if (driver == nullptr) {
    library.reason = "no CUDA driver is loaded in this process (" + request.driver +
                     "); there is no GPU, or CUDA has not been used yet";
    return library;
  }
  loading::get(driver, "cuDriverGetVersion", library.get_driver_version);
  void* const found = loading::find(request);
  if (found == nullptr) {
    library.reason = loading::why_not_opened(request);
    return library;
  }
  if (const char* missing = loading::get_all(found, library.api)) {
    library.reason =
        std::string("libcupti has no ") + missing + "; expected that of CUDA 11.8 to 13";
    return library;
  }
  library.path = loading::path_of(library.api);
  const Result code = library.api.get_version(&library.version);
  if (code != kSuccess) {
    library.reason = call_failed("cuptiGetVersion", code);
  } else if (library.version < kOldestVersion) {
    library.reason = "libcupti has interface version " + std::to_string(library.version) +
                     "; expected at least 18 (CUDA 11.8): use a torch for a newer CUDA";
  }
  library.is_untried = library.version > kNewestTried;
  return library;
}

}  // namespace otel_straggler::cupti
