/* The functions of the runtime, by vendor. */
#if VENDOR == 1
static int contexts[64];
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGetCount(int *n) { return *n = device_count(), 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal + 1000, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (device < 1000 || device >= 1000 + device_count()) return 101;
  atomic_fetch_add(&stats->devices, 1);
  *context = &contexts[device - 1000];
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, atomic_fetch_sub(&stats->devices, 1), 0; }
int cuCtxSetCurrent(void *context) { return current = (int *)context - contexts, 0; }
int cuMemAlloc_v2(uint64_t *to, size_t bytes) { return memory_alloc((void **)to, bytes, &stats->bytes); }
int cuMemFree_v2(uint64_t p) { return memory_free((void *)p, &stats->bytes); }
int cuMemAllocHost_v2(void **to, size_t bytes) { return host_alloc(to, bytes); }
int cuMemFreeHost(void *p) { return host_free(p); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) { return copy((void *)to, from, n, from, s); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { return copy(to, (void *)from, n, to, s); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *s) { return copy((void *)to, (void *)from, n, NULL, s); }
int cuStreamCreate(void **to, unsigned flags) { return flags == RT_STREAM_NON_BLOCKING ? stream_create(to) : 1; }
int cuStreamDestroy_v2(void *s) { return stream_destroy(s); }
int cuEventCreate(void **to, unsigned flags) { return flags == RT_EVENT_NO_TIMING ? event_create(to) : 1; }
int cuEventRecord(void *e, void *s) { return event_record(e, s); }
int cuEventQuery(void *e) { return event_done(e) ? 0 : RT_NOT_READY; }
int cuEventDestroy_v2(void *e) { return event_destroy(e); }
int cuGetErrorString(int code, const char **to) { return *to = code == 2 ? "out of memory" : "driver's error", 0; }
/* That they are what the shim takes them for. */
static cu_init *const check0 = cuInit;
static cu_context_retain *const check1 = cuDevicePrimaryCtxRetain;
static cu_alloc *const check2 = cuMemAlloc_v2;
static cu_to_device *const check3 = cuMemcpyHtoDAsync_v2;
static cu_to_host *const check4 = cuMemcpyDtoHAsync_v2;
static rt_create *const check5 = cuStreamCreate;
static cu_error_string *const check6 = cuGetErrorString;
__attribute__((used)) static const void *const checked_runtime[] = {&check0, &check1, &check2, &check3, &check4, &check5, &check6};
#elif VENDOR == 2 || VENDOR == 3
#if VENDOR == 2
#define RT(name) hip##name
#define HOST_ALLOC hipHostMalloc
#define HOST_FREE hipHostFree
#else
#define RT(name) musa##name
#define HOST_ALLOC musaHostAlloc
#define HOST_FREE musaFreeHost
#endif
int RT(GetDeviceCount)(int *n) { return *n = device_count(), 0; }
int RT(SetDevice)(int device) { return device < 0 || device >= device_count() ? 101 : (current = device, 0); }
int RT(Malloc)(void **to, size_t bytes) { return memory_alloc(to, bytes, &stats->bytes); }
int RT(Free)(void *p) { return memory_free(p, &stats->bytes); }
int HOST_ALLOC(void **to, size_t bytes, unsigned flags) { return flags ? 1 : host_alloc(to, bytes); }
int HOST_FREE(void *p) { return host_free(p); }
int RT(MemcpyAsync)(void *to, const void *from, size_t n, int kind, void *s) {
  return copy(to, from, n, kind == RT_HOST_TO_DEVICE ? from : kind == RT_DEVICE_TO_HOST ? to : NULL, s);
}
int RT(StreamCreateWithFlags)(void **to, unsigned flags) { return flags == RT_STREAM_NON_BLOCKING ? stream_create(to) : 1; }
int RT(StreamDestroy)(void *s) { return stream_destroy(s); }
int RT(EventCreateWithFlags)(void **to, unsigned flags) { return flags == RT_EVENT_NO_TIMING ? event_create(to) : 1; }
int RT(EventRecord)(void *e, void *s) { return event_record(e, s); }
int RT(EventQuery)(void *e) { return event_done(e) ? 0 : RT_NOT_READY; }
int RT(EventDestroy)(void *e) { return event_destroy(e); }
const char *RT(GetErrorString)(int code) { return code == 2 ? "out of memory" : "runtime's error"; }
static rt_host_alloc *const check0 = HOST_ALLOC;
static rt_copy *const check1 = RT(MemcpyAsync);
static rt_create *const check2 = RT(StreamCreateWithFlags);
__attribute__((used)) static const void *const checked_runtime[] = {&check0, &check1, &check2};
#else
static _Atomic int initialized;
int aclInit(const char *config) { return config ? 1 : atomic_exchange(&initialized, 1) ? ACL_ALREADY_INITIALIZED : 0; }
int aclrtGetDeviceCount(uint32_t *n) { return *n = device_count(), 0; }
static _Atomic int device_users[64];
int aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= device_count()) return 107001;
  if (!atomic_exchange(&device_users[device], 1)) atomic_fetch_add(&stats->devices, 1);
  return current = device, 0;
}
int aclrtResetDevice(int32_t device) {
  if (atomic_exchange(&device_users[device], 0)) atomic_fetch_sub(&stats->devices, 1);
  return 0;
}
int aclrtMalloc(void **to, size_t bytes, int policy) { return policy == ACL_HUGE_PAGES_FIRST ? memory_alloc(to, bytes, &stats->bytes) : 1; }
int aclrtFree(void *p) { return memory_free(p, &stats->bytes); }
int aclrtMallocHost(void **to, size_t bytes) { return host_alloc(to, bytes); }
int aclrtFreeHost(void *p) { return host_free(p); }
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t n, int kind, void *s) {
  if (n > room) return 107000;
  return copy(to, from, n, kind == RT_HOST_TO_DEVICE ? from : kind == RT_DEVICE_TO_HOST ? to : NULL, s);
}
int aclrtCreateStream(void **to) { return stream_create(to); }
int aclrtDestroyStream(void *s) { return stream_destroy(s); }
int aclrtCreateEvent(void **to) { return event_create(to); }
int aclrtRecordEvent(void *e, void *s) { return event_record(e, s); }
int aclrtQueryEventStatus(void *e, int *status) { return *status = event_done(e) ? ACL_EVENT_COMPLETE : 0, 0; }
int aclrtDestroyEvent(void *e) { return event_destroy(e); }
const char *aclGetRecentErrMsg(void) { return "recent error of ACL"; }
int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) { return *major = 1, *minor = 16, *patch = 0, 0; }
#ifndef NO_OPTIONAL
int aclrtStreamAbort(void *handle) {
  stream *s = handle;
  if (stream_check(s)) return 400;
  pthread_mutex_lock(&s->mu);
  if (s->first) atomic_store(&s->stopped, 1);
  pthread_mutex_unlock(&s->mu);
  while (atomic_load(&s->stopped)) usleep(50); /* until it is empty */
  return 0;
}
#endif
static acl_alloc *const check0 = aclrtMalloc;
static acl_copy *const check1 = aclrtMemcpyAsync;
static acl_version *const check2 = aclrtGetVersion;
__attribute__((used)) static const void *const checked_runtime[] = {&check0, &check1, &check2};
#endif
