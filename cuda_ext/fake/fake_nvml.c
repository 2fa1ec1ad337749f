// A libnvidia-ml without a GPU, for tests: its answers are in the file that FAKE_NVML names,
// which is read again at every call. Built as libnvidia-ml.so.1, never shipped.
//
// A line is a name and a value, or a name and "!" with an error code:
//   uuid GPU-1            model NVIDIA H200       pci 00000000:3B:00.0
//   clock.1 1980          field.83 5000           field.74 !3
//   nvmlInitWithFlags !18
// Names of signals: clock.<type>, temperature, power, energy, reasons, violation.<policy>,
// field.<number>, events (types that are supported), xid (of the next event; none: time is over).
// What is absent is not supported; functions by their own name only fail, and do not by default.
// At the end of the file named by FAKE_NVML_LOG each call adds its name.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSuccess = 0, kNotSupported = 3, kNotFound = 6, kTimeout = 10 };

typedef struct {
  unsigned field, scope;
  int64_t at, latency;
  unsigned type;
  int result;
  union {
    double real;
    uint64_t whole;
  } value;
} FieldValue;

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem;
  char bus_id[32];
} PciInfo;

typedef struct {
  void* device;
  uint64_t type, data;
  unsigned gpu_instance, compute_instance;
} EventData;

typedef struct {
  uint64_t reference, violation;
} Violation;

// The text after a name; 0 if the file has no such line.
static int find(const char* name, char* text, size_t size) {
  const char* path = getenv("FAKE_NVML");
  FILE* file = path == NULL ? NULL : fopen(path, "r");
  if (file == NULL) return 0;
  char line[256];
  int is_found = 0;
  while (!is_found && fgets(line, sizeof(line), file) != NULL) {
    line[strcspn(line, "\n")] = 0;
    char* blank = strchr(line, ' ');
    if (blank == NULL) continue;
    *blank = 0;
    is_found = strcmp(line, name) == 0;
    if (is_found) snprintf(text, size, "%s", blank + 1);
  }
  fclose(file);
  return is_found;
}

// The result of asking for a signal; its value, if that is 0.
static int ask(const char* name, uint64_t* value) {
  char text[128];
  if (!find(name, text, sizeof(text))) return kNotSupported;
  if (text[0] == '!') return atoi(text + 1);
  *value = strtoull(text, NULL, 10);
  return kSuccess;
}

static int ask_numbered(const char* name, unsigned number, uint64_t* value) {
  char whole[64];
  snprintf(whole, sizeof(whole), "%s.%u", name, number);
  return ask(whole, value);
}

static int ask_small(const char* name, unsigned* value) {
  uint64_t found = 0;
  const int result = ask(name, &found);
  *value = (unsigned)found;
  return result;
}

// Whether a function is to fail; writes down that it was called.
static int call(const char* function) {
  const char* path = getenv("FAKE_NVML_LOG");
  FILE* log = path == NULL ? NULL : fopen(path, "a");
  if (log != NULL) {
    fprintf(log, "%s\n", function);
    fclose(log);
  }
  char text[128];
  return find(function, text, sizeof(text)) && text[0] == '!' ? atoi(text + 1) : kSuccess;
}

#define CALL(function)                          \
  do {                                          \
    const int failure = call(function);         \
    if (failure != kSuccess) return failure;    \
  } while (0)

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  CALL("nvmlInitWithFlags");
  return kSuccess;
}

int nvmlShutdown(void) {
  CALL("nvmlShutdown");
  return kSuccess;
}

const char* nvmlErrorString(int result) {
  (void)result;
  return "an error of the fake";
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  CALL("nvmlDeviceGetHandleByUUID");
  char text[128];
  if (!find("uuid", text, sizeof(text)) || strcmp(text, uuid) != 0) return kNotFound;
  *device = (void*)1;
  return kSuccess;
}

int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  (void)device;
  CALL("nvmlDeviceGetName");
  return find("model", name, size) ? kSuccess : kNotSupported;
}

int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  (void)device;
  CALL("nvmlDeviceGetPciInfo_v3");
  memset(info, 0, sizeof(*info));
  return find("pci", info->bus_id, sizeof(info->bus_id)) ? kSuccess : kNotSupported;
}

int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  (void)device;
  CALL("nvmlDeviceGetFieldValues");
  for (int at = 0; at < count; ++at) {
    values[at].type = 3;
    values[at].value.whole = 0;
    values[at].result = ask_numbered("field", values[at].field, &values[at].value.whole);
  }
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* mhz) {
  (void)device;
  CALL("nvmlDeviceGetClockInfo");
  uint64_t value = 0;
  const int result = ask_numbered("clock", type, &value);
  *mhz = (unsigned)value;
  return result;
}

int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  (void)device;
  (void)sensor;
  CALL("nvmlDeviceGetTemperature");
  return ask_small("temperature", celsius);
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatt) {
  (void)device;
  CALL("nvmlDeviceGetPowerUsage");
  return ask_small("power", milliwatt);
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, uint64_t* millijoule) {
  (void)device;
  CALL("nvmlDeviceGetTotalEnergyConsumption");
  return ask("energy", millijoule);
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, uint64_t* reasons) {
  (void)device;
  CALL("nvmlDeviceGetCurrentClocksEventReasons");
  return ask("reasons", reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, uint64_t* reasons) {
  (void)device;
  CALL("nvmlDeviceGetCurrentClocksThrottleReasons");
  return ask("reasons", reasons);
}

int nvmlDeviceGetViolationStatus(void* device, unsigned policy, Violation* violation) {
  (void)device;
  CALL("nvmlDeviceGetViolationStatus");
  violation->reference = 0;
  return ask_numbered("violation", policy, &violation->violation);
}

int nvmlDeviceGetSupportedEventTypes(void* device, uint64_t* types) {
  (void)device;
  CALL("nvmlDeviceGetSupportedEventTypes");
  return ask("events", types);
}

int nvmlEventSetCreate(void** set) {
  CALL("nvmlEventSetCreate");
  *set = (void*)2;
  return kSuccess;
}

int nvmlDeviceRegisterEvents(void* device, uint64_t types, void* set) {
  (void)device;
  (void)types;
  (void)set;
  CALL("nvmlDeviceRegisterEvents");
  return kSuccess;
}

int nvmlEventSetWait_v2(void* set, EventData* event, unsigned timeout_ms) {
  (void)set;
  CALL("nvmlEventSetWait_v2");
  memset(event, 0, sizeof(*event));
  event->type = 8;
  if (ask("xid", &event->data) == kSuccess) return kSuccess;
  usleep((timeout_ms < 10 ? timeout_ms : 10) * 1000);
  return kTimeout;
}

int nvmlEventSetFree(void* set) {
  (void)set;
  CALL("nvmlEventSetFree");
  return kSuccess;
}
