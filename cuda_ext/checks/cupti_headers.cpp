// What we write down of CUPTI's binary interface, compared with NVIDIA's headers. Nothing of it is
// shipped or linked: `make cupti-headers CUPTI_INCLUDE="<of cupti> <of cuda>"`.
//
// KERNEL, MEMCPY, MEMSET, GRAPH: the newest structs of those headers; the Makefile finds them.
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>

#include <type_traits>

#include "otel_straggler/cupti/abi.hpp"

namespace ours = otel_straggler::cupti;

#define SAME_PLACE(type, field, prefix, our_field)                            \
  static_assert(offsetof(type, field) == offsetof(ours::prefix, our_field) && \
                sizeof(type::field) == sizeof(ours::prefix::our_field))

SAME_PLACE(KERNEL, kind, KernelPrefix, kind);
SAME_PLACE(KERNEL, start, KernelPrefix, start);
SAME_PLACE(KERNEL, end, KernelPrefix, end);
SAME_PLACE(KERNEL, completed, KernelPrefix, completed);
SAME_PLACE(KERNEL, deviceId, KernelPrefix, device);
SAME_PLACE(KERNEL, contextId, KernelPrefix, context);
SAME_PLACE(KERNEL, streamId, KernelPrefix, stream);
SAME_PLACE(KERNEL, correlationId, KernelPrefix, correlation);
SAME_PLACE(KERNEL, gridId, KernelPrefix, grid);
SAME_PLACE(KERNEL, name, KernelPrefix, name);
SAME_PLACE(KERNEL, graphNodeId, KernelPrefix, graph_node);
SAME_PLACE(KERNEL, graphId, KernelPrefix, graph);
static_assert(sizeof(KERNEL) >= sizeof(ours::KernelPrefix));

SAME_PLACE(MEMCPY, bytes, MemoryPrefix, bytes);
SAME_PLACE(MEMCPY, start, MemoryPrefix, start);
SAME_PLACE(MEMCPY, end, MemoryPrefix, end);
SAME_PLACE(MEMCPY, deviceId, MemoryPrefix, device);
SAME_PLACE(MEMCPY, contextId, MemoryPrefix, context);
SAME_PLACE(MEMCPY, streamId, MemoryPrefix, stream);
SAME_PLACE(MEMCPY, correlationId, MemoryPrefix, correlation);
SAME_PLACE(MEMSET, bytes, MemoryPrefix, bytes);
SAME_PLACE(MEMSET, start, MemoryPrefix, start);
SAME_PLACE(MEMSET, end, MemoryPrefix, end);
SAME_PLACE(MEMSET, deviceId, MemoryPrefix, device);
SAME_PLACE(MEMSET, streamId, MemoryPrefix, stream);
SAME_PLACE(MEMSET, correlationId, MemoryPrefix, correlation);

SAME_PLACE(GRAPH, correlationId, GraphPrefix, correlation);
SAME_PLACE(GRAPH, start, GraphPrefix, start);
SAME_PLACE(GRAPH, end, GraphPrefix, end);
SAME_PLACE(GRAPH, deviceId, GraphPrefix, device);
SAME_PLACE(GRAPH, graphId, GraphPrefix, graph);
SAME_PLACE(GRAPH, streamId, GraphPrefix, stream);

SAME_PLACE(CUpti_ActivityExternalCorrelation, externalKind, ExternalCorrelation, external_kind);
SAME_PLACE(CUpti_ActivityExternalCorrelation, externalId, ExternalCorrelation, external_id);
SAME_PLACE(CUpti_ActivityExternalCorrelation, correlationId, ExternalCorrelation, correlation);
SAME_PLACE(CUpti_CallbackData, callbackSite, CallbackData, site);
SAME_PLACE(CUpti_CallbackData, correlationId, CallbackData, correlation);

static_assert(CUPTI_SUCCESS == ours::kSuccess);
static_assert(CUPTI_ERROR_MAX_LIMIT_REACHED == ours::kMaxLimitReached);
static_assert(CUPTI_ERROR_NOT_COMPATIBLE == ours::kNotCompatible);
static_assert(CUPTI_ERROR_NOT_INITIALIZED == ours::kNotInitialized);
static_assert(CUPTI_ERROR_INVALID_KIND == ours::kInvalidKind);
static_assert(CUPTI_ERROR_NOT_SUPPORTED == ours::kNotSupported);
static_assert(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED == ours::kVirtualizedDevice);
static_assert(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES ==
              ours::kVirtualizedDevicePrivileges);
static_assert(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED == ours::kConfidentialComputing);
static_assert(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED == ours::kMigDevice);
static_assert(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES == ours::kInsufficientPrivileges);
static_assert(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED == ours::kMultipleSubscribers);
static_assert(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED == ours::kCmpDeviceNotSupported);
static_assert(CUPTI_ERROR_UNKNOWN == ours::kUnknown);

static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == ours::kMemcpy);
static_assert(CUPTI_ACTIVITY_KIND_MEMSET == ours::kMemset);
static_assert(CUPTI_ACTIVITY_KIND_DRIVER == ours::kDriver);
static_assert(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == ours::kConcurrentKernel);
static_assert(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION == ours::kExternalCorrelation);
static_assert(CUPTI_ACTIVITY_KIND_GRAPH_TRACE == ours::kGraphTrace);
static_assert(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 == ours::kExternalKindCustom2);
static_assert(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER == ours::kZeroedOutBuffers);

static_assert(CUPTI_CB_DOMAIN_DRIVER_API == ours::kDriverDomain && CUPTI_API_ENTER == ours::kEnter);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion == ours::kGetVersionCall);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel == ours::kLaunchCalls[0]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz == ours::kLaunchCalls[1]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel == ours::kLaunchCalls[2]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz == ours::kLaunchCalls[3]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch == ours::kLaunchCalls[4]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz == ours::kLaunchCalls[5]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx == ours::kLaunchCalls[6]);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz == ours::kLaunchCalls[7]);
static_assert(ours::is_graph_launch(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch));
