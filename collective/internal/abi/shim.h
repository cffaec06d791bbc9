/* One way to call the libraries of all vendors; see shim.c. Go has the same numbers and
 * layout in request.go, which load_cgo.go compares with these. */
#ifndef ELASTICPS_SHIM_H
#define ELASTICPS_SHIM_H

#include <stdint.h>

enum { VENDOR_NVIDIA = 1, VENDOR_AMD, VENDOR_MOORE_THREADS, VENDOR_ASCEND };

enum {
  DO_DEVICE_COUNT = 1, /* value */
  DO_SET_DEVICE,       /* device; makes it current on the calling thread */
  DO_RELEASE_DEVICE,   /* device */
  DO_ALLOC,            /* count: bytes; out */
  DO_FREE,             /* a */
  DO_HOST_ALLOC,       /* count; out */
  DO_HOST_FREE,        /* a */
  DO_COPY_IN,          /* a: to, b: from, count, stream */
  DO_COPY_OUT,
  DO_COPY_ON,
  DO_STREAM_CREATE, /* out */
  DO_STREAM_DESTROY,
  DO_STREAM_ABORT, /* where there is no other abort */
  DO_EVENT_CREATE, /* out */
  DO_EVENT_RECORD, /* event a, stream */
  DO_EVENT_QUERY,  /* event a; value is 1 when it has happened */
  DO_EVENT_DESTROY,

  DO_VERSION,     /* value */
  DO_UNIQUE_ID,   /* a: room for id_bytes */
  DO_INIT,        /* a: id, n ranks, rank, value: version; out */
  DO_ASYNC_ERROR, /* comm; value */
  DO_FINALIZE,
  DO_DESTROY,
  DO_ABORT,
  DO_REVOKE,
  DO_SHRINK,     /* comm, a: int32 ranks, n of them, b: address that receives the new one, value: version */
  DO_PREMUL_SUM, /* comm, a: scalar, type; value: the operation */
  DO_OP_DESTROY, /* comm, op */
  DO_GROUP_START,
  DO_GROUP_END,
  DO_ALL_REDUCE, /* a: src, b: dst, count, type, op, rank: root or peer, comm, stream */
  DO_REDUCE_SCATTER,
  DO_ALL_GATHER,
  DO_BROADCAST,
  DO_REDUCE,
  DO_ALL_TO_ALL,
  DO_SEND,
  DO_RECV,
  DO_END
};

/* What a library may lack. */
enum {
  HAS_FINALIZE = 1,
  HAS_SHRINK = 2,
  HAS_REVOKE = 4,
  HAS_PREMUL_SUM = 8,
  HAS_ALL_TO_ALL = 16,
  HAS_STREAM_ABORT = 32,
  HAS_GROUP = 64,
};

typedef struct {
  int32_t what, value, n, rank, device, type, op, unused;
  uint64_t count;
  uintptr_t a, b, comm, stream, out;
} shim_request;

typedef struct shim_library shim_library;

/* shim_built says whether the program has been built with the tag of a vendor. */
int shim_built(int vendor);

typedef struct {
  char name[64];
  int of_runtime, version; /* version: of the communicators, where they state one */
} shim_missing;

/* shim_load resolves the functions of two libraries that are open. On success it returns
 * the library; else it says which function is missing. */
shim_library *shim_load(int vendor, void *ccl, void *runtime, shim_missing *);
void shim_unload(shim_library *);
int shim_has(const shim_library *);
/* shim_is_metax reports whether a library of this handle belongs to MetaX, whose mccl has the
 * names of another vendor's. */
int shim_is_metax(void *ccl);
int shim_call(shim_library *, shim_request *);
/* shim_text copies what a code means, of the runtime or of the communicators. */
void shim_text(shim_library *, int of_runtime, int code, uintptr_t comm, char *to, int room);

#endif
