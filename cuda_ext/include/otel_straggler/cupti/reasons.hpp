// Why kernels are not timed: what was tried, what came of it, the likely cause and what to do.
#pragma once

#include <string>

#include "otel_straggler/cupti/abi.hpp"

namespace otel_straggler::cupti {

// Cause and remedy of a result code, as text for the operator of the job.
inline const char* cause_and_remedy(Result code) {
  switch (code) {
    case kNotInitialized:
      return "the CUDA driver is not initialised; use the GPU before timing starts";
    case kNotCompatible:
      return "another client uses CUPTI's newer interface in this process (cupti-python, a newer "
             "profiler); stop it, or time sections by events";
    case kNotSupported:
      return "this device or mode (MIG, vGPU, WSL, MPS, confidential computing) offers no kernel "
             "records; time sections by events";
    case kVirtualizedDevice:
      return "CUPTI does not support this virtualised GPU; time sections by events";
    case kVirtualizedDevicePrivileges:
      return "the GPU is virtualised and its host forbids profiling; ask for vGPU profiling to be "
             "enabled, or time sections by events";
    case kConfidentialComputing:
      return "the GPU is in confidential computing mode, which forbids tracing; time sections by "
             "events";
    case kMigDevice:
      return "a part of a GPU (MIG) is not supported by this CUPTI; time sections by events";
    case kInsufficientPrivileges:
      return "the driver lets administrators profile only; load it with "
             "NVreg_RestrictProfilingToAdminUsers=0 or give the container CAP_SYS_ADMIN";
    case kMultipleSubscribers:
      return "another profiler holds CUPTI (Nsight, cuda-gdb, compute-sanitizer, torch.profiler); "
             "run without it, or time sections by events";
    case kCmpDeviceNotSupported:
      return "a mining GPU (CMP) offers no kernel records; time sections by events";
    case kUnknown:
      return "no usable CUDA driver, or one older than this libcupti; compare nvidia-smi with "
             "torch.version.cuda";
    default:
      return "unexpected; please report it with the versions of driver, CUDA and torch";
  }
}

// `function` gave `code`. Does not ask CUPTI for words: where it has no driver, even that fails.
inline std::string call_failed(const char* function, Result code) {
  return std::string(function) + " gave " + std::to_string(code) + ": " + cause_and_remedy(code);
}

}  // namespace otel_straggler::cupti
