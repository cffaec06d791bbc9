/* What calls do, on the thread of a stream: ranks lay parts of their buffers into slots of
 * the shared file, wait for each other, and take what is theirs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

#if VENDOR == 4
enum { INVALID_USAGE = HCCL_PARA, REMOTE_ERROR = HCCL_REMOTE };
enum { T_INT8 = HCCL_INT8, T_UINT8 = HCCL_UINT8, T_INT32 = HCCL_INT32, T_UINT32 = HCCL_UINT32, T_INT64 = HCCL_INT64, T_UINT64 = HCCL_UINT64,
       T_FLOAT16 = HCCL_FLOAT16, T_FLOAT32 = HCCL_FLOAT32, T_FLOAT64 = HCCL_FLOAT64, T_BFLOAT16 = HCCL_BFLOAT16,
       T_E4M3 = HCCL_FLOAT8_E4M3, T_E5M2 = HCCL_FLOAT8_E5M2 };
#else
enum { INVALID_USAGE = CCL_INVALID_USAGE, REMOTE_ERROR = CCL_REMOTE_ERROR };
enum { T_INT8 = CCL_INT8, T_UINT8 = CCL_UINT8, T_INT32 = CCL_INT32, T_UINT32 = CCL_UINT32, T_INT64 = CCL_INT64, T_UINT64 = CCL_UINT64,
       T_FLOAT16 = CCL_FLOAT16, T_FLOAT32 = CCL_FLOAT32, T_FLOAT64 = CCL_FLOAT64, T_BFLOAT16 = CCL_BFLOAT16,
       T_E4M3 = CCL_FLOAT8_E4M3, T_E5M2 = CCL_FLOAT8_E5M2 };
#endif

int type_bytes(int type) {
  switch (type) {
  case T_INT8: case T_UINT8: case T_E4M3: case T_E5M2: return 1;
  case T_FLOAT16: case T_BFLOAT16: return 2;
  case T_INT32: case T_UINT32: case T_FLOAT32: return 4;
  case T_INT64: case T_UINT64: case T_FLOAT64: return 8;
  }
  return 0;
}

/* Small floats: bits of exponent and of mantissa. E4M3 has no infinity, and one NaN. */
static double small_decode(unsigned x, int e, int m, int finite) {
  int sign = x >> (e + m) & 1, exponent = x >> m & ((1 << e) - 1), mantissa = x & ((1 << m) - 1), bias = (1 << (e - 1)) - 1;
  double v;
  if (exponent == (1 << e) - 1 && (!finite || mantissa == (1 << m) - 1)) v = mantissa ? NAN : INFINITY;
  else if (exponent == 0) v = ldexp(mantissa, 1 - bias - m);
  else v = ldexp(mantissa + (1 << m), exponent - bias - m);
  return sign ? -v : v;
}

static unsigned small_encode(double v, int e, int m, int finite) {
  unsigned sign = signbit(v) ? 1u << (e + m) : 0, top = (1u << (e + m)) - 1;
  int bias = (1 << (e - 1)) - 1, exponent;
  v = fabs(v);
  if (isnan(v)) return sign | top;
  if (v == 0) return sign;
  frexp(v, &exponent);
  if (exponent < 2 - bias) exponent = 2 - bias; /* subnormal */
  double scaled = nearbyint(ldexp(v, m + 1 - exponent)); /* to nearest, ties to even */
  double code = scaled + ldexp(exponent - 2 + bias, m);  /* a carry goes into the exponent */
  unsigned last = finite ? top - 1 : (top & ~((1u << m) - 1)) - 1;
  if (isinf(v) || code > last) return sign | (finite ? top : last + 1);
  return sign | (unsigned)code;
}

static double get(int type, const char *p, size_t i) {
  switch (type) {
  case T_FLOAT32: return ((const float *)p)[i];
  case T_FLOAT64: return ((const double *)p)[i];
  case T_FLOAT16: return small_decode(((const uint16_t *)p)[i], 5, 10, 0);
  case T_BFLOAT16: return small_decode(((const uint16_t *)p)[i], 8, 7, 0);
  case T_E4M3: return small_decode(((const uint8_t *)p)[i], 4, 3, 1);
  }
  return small_decode(((const uint8_t *)p)[i], 5, 2, 0);
}

static void put(int type, char *p, size_t i, double v) {
  switch (type) {
  case T_FLOAT32: ((float *)p)[i] = v; break;
  case T_FLOAT64: ((double *)p)[i] = v; break;
  case T_FLOAT16: ((uint16_t *)p)[i] = small_encode(v, 5, 10, 0); break;
  case T_BFLOAT16: ((uint16_t *)p)[i] = small_encode(v, 8, 7, 0); break;
  case T_E4M3: ((uint8_t *)p)[i] = small_encode(v, 4, 3, 1); break;
  case T_E5M2: ((uint8_t *)p)[i] = small_encode(v, 5, 2, 0); break;
  }
}

static double join(int op, double a, double b) {
  return op == CCL_PROD ? a * b : op == CCL_MAX ? fmax(a, b) : op == CCL_MIN ? fmin(a, b) : a + b;
}

#define INTEGERS(T)                                                                                                        \
  for (size_t i = 0; i < count; i++) {                                                                                     \
    T a = ((T *)src[0])[i];                                                                                                \
    for (int r = 1; r < n; r++) {                                                                                          \
      T b = ((T *)src[r])[i];                                                                                              \
      a = op == CCL_PROD ? (T)((uint64_t)a * (uint64_t)b) : op == CCL_MAX ? (a > b ? a : b) : op == CCL_MIN ? (a < b ? a : b) : (T)((uint64_t)a + (uint64_t)b); \
    }                                                                                                                      \
    ((T *)dst)[i] = op == CCL_AVG ? a / (T)n : a;                                                                          \
  }                                                                                                                        \
  return

void combine(int type, int op, double scalar, int n, char *const *src, char *dst, size_t count) {
  switch (type) {
  case T_INT8: INTEGERS(int8_t);
  case T_UINT8: INTEGERS(uint8_t);
  case T_INT32: INTEGERS(int32_t);
  case T_UINT32: INTEGERS(uint32_t);
  case T_INT64: INTEGERS(int64_t);
  case T_UINT64: INTEGERS(uint64_t);
  }
  for (size_t i = 0; i < count; i++) {
    double by = op == PREMUL ? scalar : 1, a = get(type, src[0], i) * by;
    for (int r = 1; r < n; r++) a = join(op, a, get(type, src[r], i) * by);
    put(type, dst, i, op == CCL_AVG ? a / n : a);
  }
}

static int stopped(stream *s, comm *c) { return atomic_load(&c->stopped) || stream_stopped(s); }

/* stuck waits until somebody ends it. */
static int stuck(stream *s, comm *c) {
  while (!stopped(s, c)) usleep(200);
  return -1;
}

/* meet waits for the other ranks. When one has aborted, the device stays stuck, and the
 * communicator reports it. */
static int meet(stream *s, comm *c) {
  uint64_t phase = ++c->phase;
  atomic_store(&c->w->arrived[c->rank], phase);
  for (int r = 0; r < c->n; r++) {
    while (atomic_load(&c->w->arrived[r]) < phase) {
      if (stopped(s, c)) return -1;
      for (int gone = 0; gone < c->n; gone++)
        if (atomic_load(&c->w->aborted[gone])) atomic_store(&c->async, REMOTE_ERROR);
      usleep(50);
    }
  }
  return stopped(s, c) ? -1 : 0;
}

static uint64_t print(const call *k) {
  uint64_t p = k->what;
  p = p * 1000003 + k->count;
  p = p * 1000003 + k->type;
  p = p * 1000003 + k->op;
  return p * 1000003 + (k->what == BROADCAST || k->what == REDUCE ? k->root : 0);
}

/* take copies to dst what of the elements from begin to end is this rank's. */
static void take(call *k, size_t begin, size_t end, size_t size) {
  comm *c = k->c;
  char *src[MAX_RANKS], result[SLOT_BYTES];
  for (int r = 0; r < c->n; r++) src[r] = c->w->slot[r];
  size_t first = begin, last = end, own = c->rank * k->count;
  switch (k->what) {
  case ALL_REDUCE:
  case REDUCE:
  case REDUCE_SCATTER:
    combine(k->type, k->op, c->scalar, c->n, src, result, end - begin);
    if (k->what == REDUCE && c->rank != k->root) return;
    if (k->what == REDUCE_SCATTER) {
      if (first < own) first = own;
      if (last > own + k->count) last = own + k->count;
      if (first < last) memcpy(k->dst + (first - own) * size, result + (first - begin) * size, (last - first) * size);
      return;
    }
    memcpy(k->dst + begin * size, result, (end - begin) * size);
    return;
  case ALL_GATHER:
    for (int r = 0; r < c->n; r++) memcpy(k->dst + (r * k->count + begin) * size, src[r], (end - begin) * size);
    return;
  case BROADCAST:
    memcpy(k->dst + begin * size, src[k->root], (end - begin) * size);
    return;
  case ALL_TO_ALL:
    if (first < own) first = own;
    if (last > own + k->count) last = own + k->count;
    for (int r = 0; r < c->n && first < last; r++)
      memcpy(k->dst + (r * k->count + first - own) * size, src[r] + (first - begin) * size, (last - first) * size);
  }
}

static int collective(stream *s, call *k) {
  comm *c = k->c;
  size_t size = type_bytes(k->type), whole = k->count * (k->what == REDUCE_SCATTER || k->what == ALL_TO_ALL ? c->n : 1);
  atomic_store(&c->w->print[c->rank], print(k));
  if (meet(s, c)) return -1;
  for (int r = 0; r < c->n; r++) {
    if (atomic_load(&c->w->print[r]) != print(k)) {
      atomic_store(&c->async, INVALID_USAGE);
      return stuck(s, c);
    }
  }
  for (size_t begin = 0; begin < whole; begin += SLOT_BYTES / size) {
    size_t end = begin + SLOT_BYTES / size < whole ? begin + SLOT_BYTES / size : whole;
    if (k->what != BROADCAST || c->rank == k->root) memcpy(c->w->slot[c->rank], k->src + begin * size, (end - begin) * size);
    if (meet(s, c)) return -1;
    take(k, begin, end, size);
    if (meet(s, c)) return -1;
  }
  return 0;
}

/* step moves one part of a message if the other side lets it, and reports whether it is
 * through. */
static int step(call *k) {
  comm *c = k->c;
  size_t whole = k->count * type_bytes(k->type);
  int from = k->what == SEND ? c->rank : k->root, to = k->what == SEND ? k->root : c->rank;
  if (k->sent == whole) return 1;
  if (atomic_load(&c->w->mail[from][to].full) != (k->what == RECV)) {
    if (atomic_load(&c->w->aborted[k->root])) atomic_store(&c->async, REMOTE_ERROR);
    return 0;
  }
  size_t n = whole - k->sent < sizeof c->w->mail[0][0].data ? whole - k->sent : sizeof c->w->mail[0][0].data;
  if (k->what == SEND) {
    c->w->mail[from][to].print = k->count * 64 + k->type;
    memcpy(c->w->mail[from][to].data, k->src + k->sent, n);
  } else if (c->w->mail[from][to].print != k->count * 64 + k->type) {
    atomic_store(&c->async, INVALID_USAGE);
    return 0;
  } else {
    memcpy(k->dst + k->sent, c->w->mail[from][to].data, n);
  }
  atomic_store(&c->w->mail[from][to].full, k->what == SEND);
  k->sent += n;
  return k->sent == whole;
}

static void messages(stream *s, call *calls, int n) {
  for (;;) {
    int through = 1;
    for (int i = 0; i < n; i++)
      if (calls[i].what >= SEND) {
        if (stopped(s, calls[i].c)) return;
        through &= step(&calls[i]);
      }
    if (through) return;
    usleep(50);
  }
}

void run(stream *s, call *calls, int n) {
  int ok = 1, sends = 0;
  for (int i = 0; i < n && ok; i++) {
    comm *c = calls[i].c;
    int code = fault("async", c->device);
    if (code) atomic_store(&c->async, code);
    if (code || fault("stall", c->device)) ok = stuck(s, c) == 0;
    else if (calls[i].what < SEND) ok = collective(s, &calls[i]) == 0;
    else sends = 1;
  }
  if (ok && sends) messages(s, calls, n);
  for (int i = 0; i < n; i++) atomic_fetch_sub(&calls[i].c->active, 1);
}
