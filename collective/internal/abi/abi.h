/* What the functions of the vendors' libraries look like that shim.c calls: numbers,
 * layouts and signatures, from the vendors' documentation. The libraries that the tests
 * build include this file as well. Handles are void *, enums are int. */
#ifndef ELASTICPS_ABI_H
#define ELASTICPS_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The NCCL family: NCCL and RCCL (prefix nccl), MCCL (prefix mccl). */
#define CCL_ID_BYTES 128
typedef struct {
  char internal[CCL_ID_BYTES];
} ccl_id; /* passed by value */

enum {
  CCL_SUCCESS = 0,
  CCL_DEVICE_ERROR = 1,
  CCL_SYSTEM_ERROR = 2,
  CCL_INTERNAL_ERROR = 3,
  CCL_INVALID_ARGUMENT = 4,
  CCL_INVALID_USAGE = 5,
  CCL_REMOTE_ERROR = 6,
  CCL_IN_PROGRESS = 7,
};
enum {
  CCL_INT8 = 0,
  CCL_UINT8 = 1,
  CCL_INT32 = 2,
  CCL_UINT32 = 3,
  CCL_INT64 = 4,
  CCL_UINT64 = 5,
  CCL_FLOAT16 = 6,
  CCL_FLOAT32 = 7,
  CCL_FLOAT64 = 8,
  CCL_BFLOAT16 = 9,
  CCL_FLOAT8_E4M3 = 10,
  CCL_FLOAT8_E5M2 = 11,
};
enum { CCL_SUM = 0, CCL_PROD = 1, CCL_MAX = 2, CCL_MIN = 3, CCL_AVG = 4 };

/* The configuration of a communicator begins like this since 2.14 (up to blocking) and
 * 2.17 (whole); later versions take it at the size and version that it states. */
#define CCL_CONFIG_MAGIC 0xcafebeefu
#define CCL_UNDEFINED INT32_MIN
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking;
  int cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} ccl_config;
#define CCL_CONFIG_21400_BYTES 24

#define CCL_SHRINK_ABORT 1
#define CCL_SCALAR_ON_HOST 1 /* read before the function returns */

typedef int ccl_get_version(int *);
typedef int ccl_get_unique_id(ccl_id *);
typedef int ccl_init(void **comm, int ranks, ccl_id, int rank, ccl_config *);
typedef int ccl_of_comm(void *comm); /* finalize, destroy, abort */
typedef int ccl_async_error(void *comm, int *);
typedef const char *ccl_error_string(int);
typedef const char *ccl_last_error(void *comm);
typedef int ccl_shrink(void *comm, int *excluded, int n, void **to, ccl_config *, int flags);
typedef int ccl_revoke(void *comm, int flags);
typedef int ccl_premul_sum(int *op, void *scalar, int type, int residence, void *comm);
typedef int ccl_op_destroy(int op, void *comm);
typedef int ccl_reduction(const void *src, void *dst, size_t, int type, int op, void *comm, void *stream); /* all-reduce, reduce-scatter */
typedef int ccl_reduce(const void *src, void *dst, size_t, int type, int op, int root, void *comm, void *stream);
typedef int ccl_broadcast(const void *src, void *dst, size_t, int type, int root, void *comm, void *stream);
typedef int ccl_movement(const void *src, void *dst, size_t, int type, void *comm, void *stream); /* all-gather, all-to-all */
typedef int ccl_send(const void *src, size_t, int type, int peer, void *comm, void *stream);
typedef int ccl_recv(void *dst, size_t, int type, int peer, void *comm, void *stream);
typedef int ccl_group(void);

/* HCCL. The information of the root is passed by pointer. */
#define HCCL_ID_BYTES 4108
enum {
  HCCL_SUCCESS = 0,
  HCCL_PARA = 1,
  HCCL_INTERNAL = 4,
  HCCL_NOT_SUPPORTED = 5,
  HCCL_TIMEOUT = 9,
  HCCL_RUNTIME = 15,
  HCCL_REMOTE = 21,
};
enum {
  HCCL_INT8 = 0,
  HCCL_INT32 = 2,
  HCCL_FLOAT16 = 3,
  HCCL_FLOAT32 = 4,
  HCCL_INT64 = 5,
  HCCL_UINT64 = 6,
  HCCL_UINT8 = 7,
  HCCL_UINT32 = 9,
  HCCL_FLOAT64 = 10,
  HCCL_BFLOAT16 = 11,
  HCCL_FLOAT8_E4M3 = 15,
  HCCL_FLOAT8_E5M2 = 16,
};
enum { HCCL_SUM = 0, HCCL_PROD = 1, HCCL_MAX = 2, HCCL_MIN = 3 };

typedef int hccl_root_info(void *);
typedef int hccl_init(uint32_t ranks, const void *root_info, uint32_t rank, void **comm);
typedef int hccl_of_comm(void *comm);
typedef int hccl_async_error(void *comm, int *);
typedef const char *hccl_error_string(int);
typedef int hccl_reduction(void *src, void *dst, uint64_t, int type, int op, void *comm, void *stream);
typedef int hccl_reduce(void *src, void *dst, uint64_t, int type, int op, uint32_t root, void *comm, void *stream);
typedef int hccl_broadcast(void *buffer, uint64_t, int type, uint32_t root, void *comm, void *stream);
typedef int hccl_gather(void *src, void *dst, uint64_t, int type, void *comm, void *stream);
typedef int hccl_all_to_all(const void *src, uint64_t, int type, const void *dst, uint64_t, int dst_type, void *comm, void *stream);
typedef int hccl_message(void *buffer, uint64_t, int type, uint32_t peer, void *comm, void *stream);

/* The driver of CUDA. Addresses on devices are 64-bit numbers. */
#define RT_NOT_READY 600 /* of CUDA, HIP and MUSA */
#define RT_STREAM_NON_BLOCKING 1
#define RT_EVENT_NO_TIMING 2
enum { RT_HOST_TO_DEVICE = 1, RT_DEVICE_TO_HOST = 2, RT_DEVICE_TO_DEVICE = 3 }; /* of HIP, MUSA and ACL */

typedef int cu_init(unsigned flags);
typedef int cu_int(int *);
typedef int cu_device_get(int *device, int ordinal);
typedef int cu_context_retain(void **context, int device);
typedef int cu_device(int device);
typedef int cu_context(void *context);
typedef int cu_alloc(uint64_t *address, size_t);
typedef int cu_free(uint64_t address);
typedef int cu_to_device(uint64_t to, const void *from, size_t, void *stream);
typedef int cu_to_host(void *to, uint64_t from, size_t, void *stream);
typedef int cu_on_device(uint64_t to, uint64_t from, size_t, void *stream);
typedef int cu_error_string(int, const char **);
typedef int rt_create(void **, unsigned flags); /* a stream or event, of CUDA, HIP and MUSA */
typedef int rt_handle(void *);                  /* destroys or asks a stream or event, frees memory */
typedef int rt_record(void *event, void *stream);

/* HIP and MUSA, and with other names CUDA's runtime. */
typedef int rt_int(int *);
typedef int rt_set_device(int);
typedef int rt_alloc(void **, size_t);
typedef int rt_host_alloc(void **, size_t, unsigned flags);
typedef int rt_copy(void *to, const void *from, size_t, int kind, void *stream);
typedef const char *rt_error_string(int);

/* ACL of Ascend. */
#define ACL_ALREADY_INITIALIZED 100002
#define ACL_HUGE_PAGES_FIRST 0
#define ACL_EVENT_COMPLETE 1
typedef int acl_init(const char *config);
typedef int acl_version(int32_t *major, int32_t *minor, int32_t *patch);
typedef int acl_count(uint32_t *);
typedef int acl_device(int32_t);
typedef int acl_alloc(void **, size_t, int policy);
typedef int acl_copy(void *to, size_t room, const void *from, size_t, int kind, void *stream);
typedef int acl_create(void **);
typedef int acl_status(void *event, int *);
typedef const char *acl_message(void);

#endif
