// A CUDA driver that does nothing, at once: what is left is our own cost. Never shipped.
#include <cstdint>

extern "C" {
int cuDriverGetVersion(int* version) { return *version = 13'000, 0; }
int cuCtxGetCurrent(void** context) { return *context = reinterpret_cast<void*>(8), 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuEventCreate(void** event, unsigned) { return *event = reinterpret_cast<void*>(8), 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuEventQuery(void*) { return 0; }
int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 1, 0; }
int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
}
