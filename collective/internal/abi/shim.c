//go:build (nccl || rccl || musa || hccl) && cgo && linux

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

/* A function of the communicators, by its name behind the prefix of the family, and of
 * HCCL. Where a vendor has no name there is no such function. */
typedef struct {
  const char *family, *hccl;
  int optional; /* the bit of shim.h */
} symbol;

enum {
  F_VERSION, F_UNIQUE_ID, F_INIT, F_ASYNC_ERROR, F_FINALIZE, F_DESTROY, F_ABORT, F_REVOKE, F_SHRINK, F_PREMUL_SUM, F_OP_DESTROY,
  F_GROUP_START, F_GROUP_END, F_ALL_REDUCE, F_REDUCE_SCATTER, F_ALL_GATHER, F_BROADCAST, F_REDUCE, F_ALL_TO_ALL, F_SEND, F_RECV,
  F_ERROR_STRING, F_LAST_ERROR,
  R_INIT, R_COUNT, R_GET, R_RETAIN, R_RELEASE, R_SET, R_ALLOC, R_FREE, R_HOST_ALLOC, R_HOST_FREE, R_COPY, R_COPY_OUT, R_COPY_ON,
  R_STREAM_CREATE, R_STREAM_DESTROY, R_STREAM_ABORT, R_EVENT_CREATE, R_EVENT_RECORD, R_EVENT_QUERY, R_EVENT_DESTROY, R_ERROR_STRING,
  R_VERSION,
  SYMBOLS
};

static const symbol of_comms[R_INIT] = {
    [F_VERSION] = {"GetVersion", NULL, 0},
    [F_UNIQUE_ID] = {"GetUniqueId", "HcclGetRootInfo", 0},
    [F_INIT] = {"CommInitRankConfig", "HcclCommInitRootInfo", 0},
    [F_ASYNC_ERROR] = {"CommGetAsyncError", "HcclGetCommAsyncError", 0},
    [F_FINALIZE] = {"CommFinalize", NULL, HAS_FINALIZE},
    [F_DESTROY] = {"CommDestroy", "HcclCommDestroy", 0},
    [F_ABORT] = {"CommAbort", NULL, 0},
    [F_REVOKE] = {"CommRevoke", NULL, HAS_REVOKE},
    [F_SHRINK] = {"CommShrink", NULL, HAS_SHRINK},
    [F_PREMUL_SUM] = {"RedOpCreatePreMulSum", NULL, HAS_PREMUL_SUM},
    [F_OP_DESTROY] = {"RedOpDestroy", NULL, HAS_PREMUL_SUM},
    [F_GROUP_START] = {"GroupStart", "HcclGroupStart", HAS_GROUP},
    [F_GROUP_END] = {"GroupEnd", "HcclGroupEnd", HAS_GROUP},
    [F_ALL_REDUCE] = {"AllReduce", "HcclAllReduce", 0},
    [F_REDUCE_SCATTER] = {"ReduceScatter", "HcclReduceScatter", 0},
    [F_ALL_GATHER] = {"AllGather", "HcclAllGather", 0},
    [F_BROADCAST] = {"Broadcast", "HcclBroadcast", 0},
    [F_REDUCE] = {"Reduce", "HcclReduce", 0},
    [F_ALL_TO_ALL] = {"AlltoAll", "HcclAlltoAll", HAS_ALL_TO_ALL},
    [F_SEND] = {"Send", "HcclSend", 0},
    [F_RECV] = {"Recv", "HcclRecv", 0},
    [F_ERROR_STRING] = {"GetErrorString", "HcclGetErrorString", 0},
    [F_LAST_ERROR] = {"GetLastError", NULL, -1},
};

/* A function of the runtimes: of CUDA's driver, behind the prefix of HIP and MUSA, of ACL. */
typedef struct {
  const char *driver, *runtime, *acl;
  int optional;
} runtime_symbol;

static const runtime_symbol of_runtimes[SYMBOLS - R_INIT] = {
    [R_INIT - R_INIT] = {"cuInit", NULL, "aclInit", 0},
    [R_COUNT - R_INIT] = {"cuDeviceGetCount", "GetDeviceCount", "aclrtGetDeviceCount", 0},
    [R_GET - R_INIT] = {"cuDeviceGet", NULL, NULL, 0},
    [R_RETAIN - R_INIT] = {"cuDevicePrimaryCtxRetain", NULL, NULL, 0},
    [R_RELEASE - R_INIT] = {"cuDevicePrimaryCtxRelease_v2", NULL, "aclrtResetDevice", 0},
    [R_SET - R_INIT] = {"cuCtxSetCurrent", "SetDevice", "aclrtSetDevice", 0},
    [R_ALLOC - R_INIT] = {"cuMemAlloc_v2", "Malloc", "aclrtMalloc", 0},
    [R_FREE - R_INIT] = {"cuMemFree_v2", "Free", "aclrtFree", 0},
    [R_HOST_ALLOC - R_INIT] = {"cuMemAllocHost_v2", "HostAlloc", "aclrtMallocHost", 0},
    [R_HOST_FREE - R_INIT] = {"cuMemFreeHost", "FreeHost", "aclrtFreeHost", 0},
    [R_COPY - R_INIT] = {"cuMemcpyHtoDAsync_v2", "MemcpyAsync", "aclrtMemcpyAsync", 0},
    [R_COPY_OUT - R_INIT] = {"cuMemcpyDtoHAsync_v2", NULL, NULL, 0},
    [R_COPY_ON - R_INIT] = {"cuMemcpyDtoDAsync_v2", NULL, NULL, 0},
    [R_STREAM_CREATE - R_INIT] = {"cuStreamCreate", "StreamCreateWithFlags", "aclrtCreateStream", 0},
    [R_STREAM_DESTROY - R_INIT] = {"cuStreamDestroy_v2", "StreamDestroy", "aclrtDestroyStream", 0},
    [R_STREAM_ABORT - R_INIT] = {NULL, NULL, "aclrtStreamAbort", HAS_STREAM_ABORT},
    [R_EVENT_CREATE - R_INIT] = {"cuEventCreate", "EventCreateWithFlags", "aclrtCreateEvent", 0},
    [R_EVENT_RECORD - R_INIT] = {"cuEventRecord", "EventRecord", "aclrtRecordEvent", 0},
    [R_EVENT_QUERY - R_INIT] = {"cuEventQuery", "EventQuery", "aclrtQueryEventStatus", 0},
    [R_EVENT_DESTROY - R_INIT] = {"cuEventDestroy_v2", "EventDestroy", "aclrtDestroyEvent", 0},
    [R_ERROR_STRING - R_INIT] = {"cuGetErrorString", "GetErrorString", "aclGetRecentErrMsg", -1},
    [R_VERSION - R_INIT] = {NULL, NULL, "aclrtGetVersion", -1},
};

#define MAX_DEVICES 64

struct shim_library {
  int vendor, has;
  void *f[SYMBOLS];
  void *contexts[MAX_DEVICES]; /* of CUDA's driver */
};

static const char *const prefixes[] = {"", "nccl", "nccl", "mccl", ""};
static const char *const runtimes[] = {"", "", "hip", "musa", ""};

/* name writes what a function is called by a vendor, or nothing. */
static void name(int vendor, int f, char *to, size_t room) {
  const char *prefix = "", *rest;
  if (f < R_INIT) {
    rest = vendor == VENDOR_ASCEND ? of_comms[f].hccl : of_comms[f].family;
    prefix = prefixes[vendor];
    if (vendor == VENDOR_AMD && f == F_ALL_TO_ALL) rest = "AllToAll";
  } else {
    const runtime_symbol *s = &of_runtimes[f - R_INIT];
    rest = vendor == VENDOR_NVIDIA ? s->driver : vendor == VENDOR_ASCEND ? s->acl : s->runtime;
    prefix = runtimes[vendor];
    if (vendor == VENDOR_AMD && f == R_HOST_ALLOC) rest = "HostMalloc";
    if (vendor == VENDOR_AMD && f == R_HOST_FREE) rest = "HostFree";
  }
  snprintf(to, room, "%s%s", rest ? prefix : "", rest ? rest : "");
}

/* optional returns the bit of a function that may be missing, 0 for one that may not. HCCL
 * had no groups in the beginning, the family always. */
static int optional(int vendor, int f) {
  if (f >= R_INIT) return of_runtimes[f - R_INIT].optional;
  if (vendor != VENDOR_ASCEND && (f == F_GROUP_START || f == F_GROUP_END)) return 0;
  return of_comms[f].optional;
}

int shim_built(int vendor) {
  switch (vendor) {
#ifdef WITH_NCCL
  case VENDOR_NVIDIA: return 1;
#endif
#ifdef WITH_RCCL
  case VENDOR_AMD: return 1;
#endif
#ifdef WITH_MUSA
  case VENDOR_MOORE_THREADS: return 1;
#endif
#ifdef WITH_HCCL
  case VENDOR_ASCEND: return 1;
#endif
  }
  return 0;
}

shim_library *shim_load(int vendor, void *ccl, void *runtime, shim_missing *missing) {
  shim_library *l = calloc(1, sizeof *l);
  memset(missing, 0, sizeof *missing);
  if (!l) return NULL;
  l->vendor = vendor;
  l->has = HAS_FINALIZE | HAS_SHRINK | HAS_REVOKE | HAS_PREMUL_SUM | HAS_ALL_TO_ALL | HAS_STREAM_ABORT | HAS_GROUP;
  for (int f = 0; f < SYMBOLS; f++) {
    int bit = optional(vendor, f);
    char wanted[sizeof missing->name];
    name(vendor, f, wanted, sizeof wanted);
    if (wanted[0]) l->f[f] = dlsym(f < R_INIT ? ccl : runtime, wanted);
    if (l->f[f]) continue;
    if (bit > 0) l->has &= ~bit;
    if (wanted[0] && bit == 0) {
      memcpy(missing->name, wanted, sizeof wanted);
      missing->of_runtime = f >= R_INIT;
      if (l->f[F_VERSION]) ((ccl_get_version *)l->f[F_VERSION])(&missing->version);
      free(l);
      return NULL;
    }
  }
  return l;
}

void shim_unload(shim_library *l) { free(l); }

int shim_has(const shim_library *l) { return l->has; }

int shim_is_metax(void *ccl) { return dlsym(ccl, "mcGetDeviceCount") != NULL; }

#define CALL(type, which) ((type *)l->f[which])
#define P(x) ((void *)(x))

/* driver_device makes a device current, which CUDA's driver does by a context that all
 * of the process share. */
static int driver_device(shim_library *l, shim_request *r) {
  int code = 0, device;
  if (r->device < 0 || r->device >= MAX_DEVICES) return 101; /* invalid device */
  void **context = &l->contexts[r->device];
  if (!*context) {
    if ((code = CALL(cu_device_get, R_GET)(&device, r->device)) != 0) return code;
    if ((code = CALL(cu_context_retain, R_RETAIN)(context, device)) != 0) return code;
  }
  return CALL(cu_context, R_SET)(*context);
}

static int driver_release(shim_library *l, shim_request *r) {
  int code = 0, device;
  if (r->device < 0 || r->device >= MAX_DEVICES || !l->contexts[r->device]) return 0;
  if ((code = CALL(cu_device_get, R_GET)(&device, r->device)) != 0) return code;
  l->contexts[r->device] = NULL;
  return CALL(cu_device, R_RELEASE)(device);
}

static int driver_call(shim_library *l, shim_request *r) {
  uint64_t address = 0;
  int code;
  switch (r->what) {
  case DO_DEVICE_COUNT:
    if ((code = CALL(cu_init, R_INIT)(0)) != 0) return code;
    return CALL(cu_int, R_COUNT)(&r->value);
  case DO_SET_DEVICE: return driver_device(l, r);
  case DO_RELEASE_DEVICE: return driver_release(l, r);
  case DO_ALLOC:
    code = CALL(cu_alloc, R_ALLOC)(&address, r->count);
    r->out = address;
    return code;
  case DO_FREE: return CALL(cu_free, R_FREE)(r->a);
  case DO_HOST_ALLOC: return CALL(rt_alloc, R_HOST_ALLOC)((void **)&r->out, r->count);
  case DO_COPY_IN: return CALL(cu_to_device, R_COPY)(r->a, P(r->b), r->count, P(r->stream));
  case DO_COPY_OUT: return CALL(cu_to_host, R_COPY_OUT)(P(r->a), r->b, r->count, P(r->stream));
  case DO_COPY_ON: return CALL(cu_on_device, R_COPY_ON)(r->a, r->b, r->count, P(r->stream));
  }
  return -1;
}

static int hip_call(shim_library *l, shim_request *r) {
  switch (r->what) {
  case DO_DEVICE_COUNT: return CALL(rt_int, R_COUNT)(&r->value);
  case DO_SET_DEVICE: return CALL(rt_set_device, R_SET)(r->device);
  case DO_RELEASE_DEVICE: return 0;
  case DO_ALLOC: return CALL(rt_alloc, R_ALLOC)((void **)&r->out, r->count);
  case DO_FREE: return CALL(rt_handle, R_FREE)(P(r->a));
  case DO_HOST_ALLOC: return CALL(rt_host_alloc, R_HOST_ALLOC)((void **)&r->out, r->count, 0);
  case DO_COPY_IN: return CALL(rt_copy, R_COPY)(P(r->a), P(r->b), r->count, RT_HOST_TO_DEVICE, P(r->stream));
  case DO_COPY_OUT: return CALL(rt_copy, R_COPY)(P(r->a), P(r->b), r->count, RT_DEVICE_TO_HOST, P(r->stream));
  case DO_COPY_ON: return CALL(rt_copy, R_COPY)(P(r->a), P(r->b), r->count, RT_DEVICE_TO_DEVICE, P(r->stream));
  }
  return -1;
}

/* event_call is alike for CUDA, HIP and MUSA. */
static int event_call(shim_library *l, shim_request *r) {
  int code;
  switch (r->what) {
  case DO_HOST_FREE: return CALL(rt_handle, R_HOST_FREE)(P(r->a));
  case DO_STREAM_CREATE: return CALL(rt_create, R_STREAM_CREATE)((void **)&r->out, RT_STREAM_NON_BLOCKING);
  case DO_STREAM_DESTROY: return CALL(rt_handle, R_STREAM_DESTROY)(P(r->stream));
  case DO_EVENT_CREATE: return CALL(rt_create, R_EVENT_CREATE)((void **)&r->out, RT_EVENT_NO_TIMING);
  case DO_EVENT_RECORD: return CALL(rt_record, R_EVENT_RECORD)(P(r->a), P(r->stream));
  case DO_EVENT_DESTROY: return CALL(rt_handle, R_EVENT_DESTROY)(P(r->a));
  case DO_EVENT_QUERY:
    code = CALL(rt_handle, R_EVENT_QUERY)(P(r->a));
    r->value = code == 0;
    return code == RT_NOT_READY ? 0 : code;
  }
  return l->vendor == VENDOR_NVIDIA ? driver_call(l, r) : hip_call(l, r);
}

static int acl_copy_kind(int what) {
  return what == DO_COPY_IN ? RT_HOST_TO_DEVICE : what == DO_COPY_OUT ? RT_DEVICE_TO_HOST : RT_DEVICE_TO_DEVICE;
}

static int acl_call(shim_library *l, shim_request *r) {
  uint32_t count = 0;
  int code, status = 0;
  switch (r->what) {
  case DO_DEVICE_COUNT:
    code = CALL(acl_init, R_INIT)(NULL);
    if (code != 0 && code != ACL_ALREADY_INITIALIZED) return code;
    code = CALL(acl_count, R_COUNT)(&count);
    r->value = (int32_t)count;
    return code;
  case DO_SET_DEVICE: return CALL(acl_device, R_SET)(r->device);
  case DO_RELEASE_DEVICE: return CALL(acl_device, R_RELEASE)(r->device);
  case DO_ALLOC: return CALL(acl_alloc, R_ALLOC)((void **)&r->out, r->count, ACL_HUGE_PAGES_FIRST);
  case DO_FREE: return CALL(rt_handle, R_FREE)(P(r->a));
  case DO_HOST_ALLOC: return CALL(rt_alloc, R_HOST_ALLOC)((void **)&r->out, r->count);
  case DO_HOST_FREE: return CALL(rt_handle, R_HOST_FREE)(P(r->a));
  case DO_COPY_IN:
  case DO_COPY_OUT:
  case DO_COPY_ON: return CALL(acl_copy, R_COPY)(P(r->a), r->count, P(r->b), r->count, acl_copy_kind(r->what), P(r->stream));
  case DO_STREAM_CREATE: return CALL(acl_create, R_STREAM_CREATE)((void **)&r->out);
  case DO_STREAM_DESTROY: return CALL(rt_handle, R_STREAM_DESTROY)(P(r->stream));
  case DO_STREAM_ABORT: return CALL(rt_handle, R_STREAM_ABORT)(P(r->stream));
  case DO_EVENT_CREATE: return CALL(acl_create, R_EVENT_CREATE)((void **)&r->out);
  case DO_EVENT_RECORD: return CALL(rt_record, R_EVENT_RECORD)(P(r->a), P(r->stream));
  case DO_EVENT_DESTROY: return CALL(rt_handle, R_EVENT_DESTROY)(P(r->a));
  case DO_EVENT_QUERY:
    code = CALL(acl_status, R_EVENT_QUERY)(P(r->a), &status);
    r->value = status == ACL_EVENT_COMPLETE;
    return code;
  }
  return -1;
}

/* configure states what of the configuration the library knows. */
static ccl_config configure(int version) {
  ccl_config c = {.size = sizeof c, .magic = CCL_CONFIG_MAGIC, .version = 21700, .blocking = 0};
  if (version < 21700) c.size = CCL_CONFIG_21400_BYTES, c.version = 21400;
  c.cga_cluster_size = c.min_ctas = c.max_ctas = c.split_share = CCL_UNDEFINED;
  return c;
}

static int family_comm(shim_library *l, shim_request *r) {
  ccl_config config = configure(r->value);
  ccl_id id;
  void *comm = P(r->comm);
  switch (r->what) {
  case DO_VERSION: return CALL(ccl_get_version, F_VERSION)(&r->value);
  case DO_UNIQUE_ID: return CALL(ccl_get_unique_id, F_UNIQUE_ID)(P(r->a));
  case DO_INIT:
    memcpy(&id, P(r->a), sizeof id);
    return CALL(ccl_init, F_INIT)((void **)&r->out, r->n, id, r->rank, &config);
  case DO_ASYNC_ERROR: return CALL(ccl_async_error, F_ASYNC_ERROR)(comm, &r->value);
  case DO_FINALIZE: return CALL(ccl_of_comm, F_FINALIZE)(comm);
  case DO_DESTROY: return CALL(ccl_of_comm, F_DESTROY)(comm);
  case DO_ABORT: return CALL(ccl_of_comm, F_ABORT)(comm);
  case DO_REVOKE: return CALL(ccl_revoke, F_REVOKE)(comm, 0);
  case DO_SHRINK: return CALL(ccl_shrink, F_SHRINK)(comm, P(r->a), r->n, P(r->b), &config, CCL_SHRINK_ABORT);
  case DO_PREMUL_SUM: return CALL(ccl_premul_sum, F_PREMUL_SUM)(&r->value, P(r->a), r->type, CCL_SCALAR_ON_HOST, comm);
  case DO_OP_DESTROY: return CALL(ccl_op_destroy, F_OP_DESTROY)(r->op, comm);
  }
  return -1;
}

static int family_call(shim_library *l, shim_request *r) {
  void *comm = P(r->comm), *stream = P(r->stream), *a = P(r->a), *b = P(r->b);
  switch (r->what) {
  case DO_GROUP_START: return CALL(ccl_group, F_GROUP_START)();
  case DO_GROUP_END: return CALL(ccl_group, F_GROUP_END)();
  case DO_ALL_REDUCE: return CALL(ccl_reduction, F_ALL_REDUCE)(a, b, r->count, r->type, r->op, comm, stream);
  case DO_REDUCE_SCATTER: return CALL(ccl_reduction, F_REDUCE_SCATTER)(a, b, r->count, r->type, r->op, comm, stream);
  case DO_ALL_GATHER: return CALL(ccl_movement, F_ALL_GATHER)(a, b, r->count, r->type, comm, stream);
  case DO_ALL_TO_ALL: return CALL(ccl_movement, F_ALL_TO_ALL)(a, b, r->count, r->type, comm, stream);
  case DO_BROADCAST: return CALL(ccl_broadcast, F_BROADCAST)(a, b, r->count, r->type, r->rank, comm, stream);
  case DO_REDUCE: return CALL(ccl_reduce, F_REDUCE)(a, b, r->count, r->type, r->op, r->rank, comm, stream);
  case DO_SEND: return CALL(ccl_send, F_SEND)(a, r->count, r->type, r->rank, comm, stream);
  case DO_RECV: return CALL(ccl_recv, F_RECV)(b, r->count, r->type, r->rank, comm, stream);
  }
  return family_comm(l, r);
}

static int acl_interface(shim_library *l, shim_request *r) {
  int32_t major = 0, minor = 0, patch = 0;
  int code = 0;
  if (l->f[R_VERSION]) code = CALL(acl_version, R_VERSION)(&major, &minor, &patch);
  r->value = major * 10000 + minor * 100 + patch;
  return code;
}

static int hccl_call(shim_library *l, shim_request *r) {
  void *comm = P(r->comm), *stream = P(r->stream), *a = P(r->a), *b = P(r->b);
  switch (r->what) {
  case DO_VERSION: return acl_interface(l, r);
  case DO_UNIQUE_ID: return CALL(hccl_root_info, F_UNIQUE_ID)(a);
  case DO_INIT: return CALL(hccl_init, F_INIT)(r->n, a, r->rank, (void **)&r->out);
  case DO_ASYNC_ERROR: return CALL(hccl_async_error, F_ASYNC_ERROR)(comm, &r->value);
  case DO_DESTROY: return CALL(hccl_of_comm, F_DESTROY)(comm);
  case DO_GROUP_START: return CALL(ccl_group, F_GROUP_START)();
  case DO_GROUP_END: return CALL(ccl_group, F_GROUP_END)();
  case DO_ALL_REDUCE: return CALL(hccl_reduction, F_ALL_REDUCE)(a, b, r->count, r->type, r->op, comm, stream);
  case DO_REDUCE_SCATTER: return CALL(hccl_reduction, F_REDUCE_SCATTER)(a, b, r->count, r->type, r->op, comm, stream);
  case DO_ALL_GATHER: return CALL(hccl_gather, F_ALL_GATHER)(a, b, r->count, r->type, comm, stream);
  case DO_ALL_TO_ALL: return CALL(hccl_all_to_all, F_ALL_TO_ALL)(a, r->count, r->type, b, r->count, r->type, comm, stream);
  case DO_BROADCAST: return CALL(hccl_broadcast, F_BROADCAST)(b, r->count, r->type, r->rank, comm, stream);
  case DO_REDUCE: return CALL(hccl_reduce, F_REDUCE)(a, b, r->count, r->type, r->op, r->rank, comm, stream);
  case DO_SEND: return CALL(hccl_message, F_SEND)(a, r->count, r->type, r->rank, comm, stream);
  case DO_RECV: return CALL(hccl_message, F_RECV)(b, r->count, r->type, r->rank, comm, stream);
  }
  return -1;
}

int shim_call(shim_library *l, shim_request *r) {
  if (r->what < DO_VERSION) return l->vendor == VENDOR_ASCEND ? acl_call(l, r) : event_call(l, r);
  return l->vendor == VENDOR_ASCEND ? hccl_call(l, r) : family_call(l, r);
}

static const char *runtime_text(shim_library *l, int code) {
  const char *text = NULL;
  if (!l->f[R_ERROR_STRING]) return NULL;
  switch (l->vendor) {
  case VENDOR_NVIDIA: return CALL(cu_error_string, R_ERROR_STRING)(code, &text) == 0 ? text : NULL;
  case VENDOR_ASCEND: return CALL(acl_message, R_ERROR_STRING)();
  }
  return CALL(rt_error_string, R_ERROR_STRING)(code);
}

void shim_text(shim_library *l, int of_runtime, int code, uintptr_t comm, char *to, int room) {
  const char *text = of_runtime ? runtime_text(l, code) : CALL(ccl_error_string, F_ERROR_STRING)(code);
  const char *more = !of_runtime && comm && l->f[F_LAST_ERROR] ? CALL(ccl_last_error, F_LAST_ERROR)(P(comm)) : NULL;
  snprintf(to, room, "%s%s%s", text ? text : "", more && more[0] ? ": " : "", more ? more : "");
}
