/* A library with the functions of libnvidia-ml.so.1 that the package calls, for two devices
 * that are linked by two NVLinks and have one more to a switch. Built by the test with
 * macros for its faults:
 *   NO_OPTIONAL   only the functions without which there is no list
 *   NO_COUNT      no function to count the devices
 *   INIT_CODE     what nvmlInit_v2 returns
 *   LOST          the second device has fallen off the bus
 *   RESET         the second device wants a reset, as soon as its memory is asked for
 */
#include <stdio.h>
#include <string.h>

typedef struct { int number; } device;
static device devices[2] = {{0}, {1}};

#ifndef INIT_CODE
#define INIT_CODE 0
#endif
static int running;

int nvmlInit_v2(void) { running = INIT_CODE == 0; return INIT_CODE; }
int nvmlShutdown(void) { if (!running) return 1; running = 0; return 0; }

#ifndef NO_COUNT
int nvmlDeviceGetCount_v2(unsigned *n) { if (!running) return 1; *n = 2; return 0; }
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned i, device **d) {
  if (i > 1) return 2;
#ifdef LOST
  if (i == 1) return 15;
#endif
  *d = &devices[i];
  return 0;
}

#ifndef NO_OPTIONAL
typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} pci;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  unsigned valueType;
  int nvmlReturn;
  union { unsigned ui; char raw[8]; } value;
} field;

int nvmlDeviceGetUUID(device *d, char *to, unsigned n) { snprintf(to, n, "GPU-fake-%d", d->number); return 0; }
int nvmlDeviceGetName(device *d, char *to, unsigned n) { (void)d; snprintf(to, n, "Fake A100"); return 0; }
int nvmlDeviceGetPciInfo_v3(device *d, pci *p) {
  memset(p, 0, sizeof *p);
  p->bus = d->number + 7;
  snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
  return 0;
}
int nvmlDeviceGetMemoryInfo(device *d, memory *m) {
#ifdef RESET
  if (d->number == 1) return 16;
#endif
  m->total = 80ULL << 30; m->used = (d->number + 1ULL) << 30; m->free = m->total - m->used;
  return 0;
}
int nvmlDeviceGetUtilizationRates(device *d, utilization *u) {
  if (d->number == 1) return 3; /* as for a divided device */
  u->gpu = 55; u->memory = 10;
  return 0;
}
int nvmlDeviceGetTemperature(device *d, unsigned sensor, unsigned *c) { if (sensor != 0) return 2; *c = 40 + d->number; return 0; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *mw) { *mw = 61500 + d->number; return 0; }
int nvmlDeviceGetTotalEccErrors(device *d, unsigned type, unsigned counter, unsigned long long *n) {
  if (type != 1 || counter != 0) return 2;
  *n = 3 * d->number;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(device *d, unsigned *g) { (void)d; *g = 4; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(device *d, unsigned *w) { (void)d; *w = 16; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(device *a, device *b, int *level) {
	*level = 30; /* a host bridge */
	return a == b ? 2 : 0;
}

int nvmlDeviceGetNvLinkState(device *d, unsigned link, unsigned *on) {
  (void)d;
  if (link > 3) return 2;
  *on = link != 2; /* the third is down */
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device *d, unsigned link, pci *p) {
  memset(p, 0, sizeof *p);
  snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", link == 3 ? 0xC1 : 8 - d->number);
  return 0;
}
int nvmlDeviceGetFieldValues(device *d, int n, field *f) {
  (void)d;
  if (n != 1 || f->fieldId != 90) return 2;
  f->nvmlReturn = 0; f->value.ui = 25781;
  return 0;
}
#endif
