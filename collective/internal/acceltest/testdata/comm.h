/* The functions of communicators, by vendor. */
#define COMM_MAGIC 0xc0117e
#define IN_PROGRESS_FOR 6 /* questions after a call, with a communicator that does not block */

#if VENDOR == 4
#define F(name) Hccl##name
enum { BAD_ARGUMENT = HCCL_PARA, UNUSABLE = HCCL_INTERNAL, IN_PROGRESS = 0 };
#else
#if VENDOR == 3
#define F(name) mccl##name
#else
#define F(name) nccl##name
#endif
enum { BAD_ARGUMENT = CCL_INVALID_ARGUMENT, UNUSABLE = CCL_INVALID_USAGE, IN_PROGRESS = CCL_IN_PROGRESS };
#endif

static _Atomic int inside[64]; /* calls about a device */

/* enter checks that a communicator may be used, and leave that nobody else came. */
static int enter(comm *c) {
  if (!c || c->magic != COMM_MAGIC) return misuse(BAD_USE), UNUSABLE;
  if (c->device != current) return misuse(BAD_DEVICE), UNUSABLE;
  long none = 0;
  if (!atomic_compare_exchange_strong(&c->thread, &none, (long)gettid()) && none != (long)gettid()) misuse(BAD_THREAD);
  if (atomic_fetch_add(&inside[c->device], 1)) misuse(BAD_CONCURRENT);
  return 0;
}

static int leave(comm *c, int code) { return atomic_fetch_sub(&inside[c->device], 1), code; }

static comm *comm_new(const char *name, int n, int rank, int blocking) {
  comm *c = calloc(1, sizeof *c);
  c->magic = COMM_MAGIC;
  c->n = n, c->rank = rank, c->device = current, c->blocking = blocking;
  snprintf(c->name, sizeof c->name, "%.90s", name);
  c->w = shared(c->name, sizeof *c->w);
  atomic_fetch_add(&stats->comms, 1);
  if (atomic_exchange(&c->w->joined[rank], 1)) misuse(BAD_ID);
  return c;
}

static int all(comm *c, _Atomic uint64_t *what) {
  int n = 0;
  for (int r = 0; r < c->n; r++) n += atomic_load(&what[r]) != 0;
  return n == c->n;
}

/* comm_end leaves the memory, so that a use after it is noticed. */
static int comm_end(comm *c) {
  atomic_store(&c->stopped, 1);
  for (int i = 0; i < 5000 && atomic_load(&c->active); i++) usleep(200);
  munmap(c->w, sizeof *c->w);
  c->magic = 0;
  atomic_fetch_sub(&stats->comms, 1);
  return leave(c, 0);
}

/* name_id makes an id that says when a part of it is lost. */
static void name_id(char *id, int bytes) {
  static _Atomic int made;
  memset(id, 0x33, bytes);
  id[0] = 0x5a;
  id[bytes - 1] = 0x7e;
  snprintf(id + 1, 60, "world-%d-%d", (int)getpid(), atomic_fetch_add(&made, 1));
}

static int id_whole(const char *id, int bytes) {
  if (id[0] == 0x5a && id[bytes - 1] == 0x7e && memchr(id + 1, 0, 60)) return 1;
  misuse(BAD_ID);
  return 0;
}

/* Calls between the start and the end of a group wait for its end. */
static __thread struct {
  int depth, n;
  call calls[64];
  stream *s;
} group;

static int submit(const char *name, call k, void *handle) {
  stream *s = handle;
  comm *c = k.c;
  if (enter(c)) return UNUSABLE;
  int code = fault(name, c->device);
  if (code) return leave(c, code);
  if ((code = fault("block", c->device))) usleep(code * 1000); /* a library that does not come back */
  if (stream_check(s)) return leave(c, BAD_ARGUMENT);
  if (!type_bytes(k.type) || k.count == 0 || k.root < 0 || k.root >= c->n) return leave(c, BAD_ARGUMENT);
  if (k.op > CCL_AVG && k.op != PREMUL) return leave(c, BAD_ARGUMENT);
  if (atomic_load(&c->busy) || !all(c, c->w->joined)) misuse(BAD_BUSY);
  if (group.depth) {
    if (group.n == 64) return leave(c, UNUSABLE);
    group.s = s;
    group.calls[group.n++] = k;
    return leave(c, 0);
  }
  enqueue_calls(s, &k, 1);
  if (c->blocking) return leave(c, 0);
  atomic_store(&c->busy, IN_PROGRESS_FOR);
  return leave(c, IN_PROGRESS);
}

__attribute__((unused)) static int group_end(void) {
  if (!group.depth) return UNUSABLE;
  if (--group.depth || !group.n) return 0;
  comm *c = group.calls[0].c;
  enqueue_calls(group.s, group.calls, group.n);
  group.n = 0;
  if (c->blocking) return 0;
  atomic_store(&c->busy, IN_PROGRESS_FOR);
  return IN_PROGRESS;
}

static int async_error(comm *c, int *state) {
  if (enter(c)) return UNUSABLE;
  *state = atomic_load(&c->async);
  if (*state) return leave(c, 0);
  if (c->child && !c->child_after--) *c->child_to = c->child, c->child = NULL;
  int busy = atomic_load(&c->busy) > 0 && atomic_fetch_sub(&c->busy, 1) > 0;
  if (busy || c->child || !all(c, c->w->joined)) *state = IN_PROGRESS;
  if (atomic_load(&c->w->finalized[c->rank]) && !all(c, c->w->finalized)) *state = IN_PROGRESS;
  return leave(c, 0);
}

#if VENDOR != 4
const char *F(GetErrorString)(int code) { return code == CCL_REMOTE_ERROR ? "remote process exited" : code == CCL_INVALID_USAGE ? "invalid usage" : "error"; }
int F(GetVersion)(int *to) { return *to = VERSION, 0; }
int F(GetUniqueId)(ccl_id *id) {
  if (fault("GetUniqueId", current)) return CCL_SYSTEM_ERROR;
  return name_id(id->internal, sizeof id->internal), 0;
}
int F(CommInitRankConfig)(void **to, int n, ccl_id id, int rank, ccl_config *config) {
  int code = fault("CommInitRankConfig", current);
  if (code) return code;
  if (current < 0) return misuse(BAD_DEVICE), UNUSABLE;
  if (!id_whole(id.internal, sizeof id.internal) || n > MAX_RANKS || rank >= n) return BAD_ARGUMENT;
  int old = VERSION < 21700;
  if (config->magic != CCL_CONFIG_MAGIC || config->size != (old ? CCL_CONFIG_21400_BYTES : sizeof *config) || config->version != (old ? 21400 : 21700) ||
      (!old && (config->min_ctas != CCL_UNDEFINED || config->split_share != CCL_UNDEFINED)))
    return misuse(BAD_CONFIG), BAD_ARGUMENT;
  *to = comm_new(id.internal + 1, n, rank, config->blocking);
  return config->blocking ? 0 : IN_PROGRESS;
}
int F(CommGetAsyncError)(void *c, int *state) { return async_error(c, state); }
int F(CommDestroy)(void *handle) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  if (atomic_load(&c->active)) misuse(BAD_BUSY);
  return comm_end(c);
}
int F(CommAbort)(void *handle) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  atomic_store(&c->w->aborted[c->rank], 1);
  atomic_fetch_add(&stats->aborts, 1);
  return comm_end(c);
}
#ifndef NO_OPTIONAL
int F(CommFinalize)(void *handle) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  if (atomic_load(&c->active)) misuse(BAD_BUSY);
  atomic_store(&c->w->finalized[c->rank], 1);
  return leave(c, IN_PROGRESS);
}
int F(CommRevoke)(void *handle, int flags) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  atomic_store(&c->stopped, 1);
  return leave(c, flags ? BAD_ARGUMENT : 0);
}
int F(CommShrink)(void *handle, int *excluded, int n, void **to, ccl_config *config, int flags) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  unsigned mask = 0, below = 0;
  for (int i = 0; i < n; i++) mask |= 1u << excluded[i], below += excluded[i] < c->rank;
  if (flags != CCL_SHRINK_ABORT || config->magic != CCL_CONFIG_MAGIC || mask >> c->rank & 1) return leave(c, BAD_ARGUMENT);
  atomic_store(&c->stopped, 1);
  char name[sizeof c->name + 16];
  snprintf(name, sizeof name, "%.80s-%x", c->name, mask);
  c->child = comm_new(name, c->n - n, c->rank - below, config->blocking);
  c->child_to = (comm **)to;
  c->child_after = 2;
  atomic_store(&c->async, 0);
  return leave(c, IN_PROGRESS);
}
const char *F(GetLastError)(void *c) { return (void)c, "as told"; }
#if VENDOR == 2
int ncclAllToAll(const void *src, void *dst, size_t n, int type, void *c, void *s) {
#else
int F(AlltoAll)(const void *src, void *dst, size_t n, int type, void *c, void *s) {
#endif
  return submit("AlltoAll", (call){ALL_TO_ALL, (char *)src, dst, n, type, 0, 0, c, 0}, s);
}
#endif
#if !defined NO_OPTIONAL || defined PREMUL_SUM
int F(RedOpCreatePreMulSum)(int *op, void *scalar, int type, int residence, void *handle) {
  comm *c = handle;
  if (enter(c)) return UNUSABLE;
  if (residence != CCL_SCALAR_ON_HOST) return leave(c, BAD_ARGUMENT);
  char *one[1] = {scalar};
  double as_double[1];
  if (type == CCL_FLOAT64) combine(type, CCL_SUM, 1, 1, one, (char *)as_double, 1);
  else if (type == CCL_FLOAT32) as_double[0] = *(float *)scalar;
  else { /* through the only exact way that combine has */
    uint16_t bits = *(uint16_t *)scalar;
    as_double[0] = type == CCL_BFLOAT16 ? (double)((union { uint32_t u; float f; }){(uint32_t)bits << 16}).f : (double)*(_Float16 *)&bits;
  }
  c->scalar = as_double[0];
  *op = PREMUL;
  return leave(c, 0);
}
int F(RedOpDestroy)(int op, void *c) { return (void)c, op == PREMUL ? 0 : BAD_ARGUMENT; }
#endif
int F(GroupStart)(void) { return group.depth++, 0; }
int F(GroupEnd)(void) { return group_end(); }
int F(AllReduce)(const void *src, void *dst, size_t n, int type, int op, void *c, void *s) {
  return submit("AllReduce", (call){ALL_REDUCE, (char *)src, dst, n, type, op, 0, c, 0}, s);
}
int F(ReduceScatter)(const void *src, void *dst, size_t n, int type, int op, void *c, void *s) {
  return submit("ReduceScatter", (call){REDUCE_SCATTER, (char *)src, dst, n, type, op, 0, c, 0}, s);
}
int F(AllGather)(const void *src, void *dst, size_t n, int type, void *c, void *s) {
  return submit("AllGather", (call){ALL_GATHER, (char *)src, dst, n, type, 0, 0, c, 0}, s);
}
int F(Broadcast)(const void *src, void *dst, size_t n, int type, int root, void *c, void *s) {
  return submit("Broadcast", (call){BROADCAST, (char *)src, dst, n, type, 0, root, c, 0}, s);
}
#ifndef NO_REDUCE
int F(Reduce)(const void *src, void *dst, size_t n, int type, int op, int root, void *c, void *s) {
  return submit("Reduce", (call){REDUCE, (char *)src, dst, n, type, op, root, c, 0}, s);
}
static ccl_reduce *const check12 = F(Reduce);
__attribute__((used)) static const void *const checked_reduce = &check12;
#endif
int F(Send)(const void *src, size_t n, int type, int peer, void *c, void *s) {
  return submit("Send", (call){SEND, (char *)src, NULL, n, type, 0, peer, c, 0}, s);
}
int F(Recv)(void *dst, size_t n, int type, int peer, void *c, void *s) {
  return submit("Recv", (call){RECV, NULL, dst, n, type, 0, peer, c, 0}, s);
}
#ifdef METAX
int mcGetDeviceCount(int *n) { return *n = 8, 0; }
#endif
static ccl_init *const check10 = F(CommInitRankConfig);
static ccl_reduction *const check11 = F(AllReduce);
static ccl_broadcast *const check13 = F(Broadcast);
static ccl_send *const check14 = F(Send);
static ccl_recv *const check15 = F(Recv);
__attribute__((used)) static const void *const checked_comm[] = {&check10, &check11, &check13, &check14, &check15};
#else
const char *HcclGetErrorString(int code) { return code == HCCL_REMOTE ? "remote error" : code == HCCL_TIMEOUT ? "timeout" : "error"; }
int HcclGetRootInfo(void *id) { return fault("GetRootInfo", current) ? HCCL_RUNTIME : (name_id(id, HCCL_ID_BYTES), 0); }
/* HcclCommInitRootInfo waits for all ranks, FAKE_HCCL_TIMEOUT milliseconds at most. */
int HcclCommInitRootInfo(uint32_t n, const void *id, uint32_t rank, void **to) {
  int code = fault("CommInitRootInfo", current), left = getenv("FAKE_HCCL_TIMEOUT") ? atoi(getenv("FAKE_HCCL_TIMEOUT")) : 10000;
  if (code) return code;
  if (current < 0) return misuse(BAD_DEVICE), UNUSABLE;
  if (!id_whole(id, HCCL_ID_BYTES) || n > MAX_RANKS || rank >= n) return BAD_ARGUMENT;
  comm *c = comm_new((const char *)id + 1, n, rank, 1);
  for (; !all(c, c->w->joined) && left > 0; left--) usleep(1000);
  if (left > 0) return *to = c, 0;
  atomic_fetch_add(&inside[c->device], 1);
  comm_end(c);
  return HCCL_TIMEOUT;
}
int HcclGetCommAsyncError(void *c, int *state) { return async_error(c, state); }
/* HcclCommDestroy ends no call: it would wait for it. */
int HcclCommDestroy(void *handle) {
  comm *c = handle;
  if (!c || c->magic != COMM_MAGIC) return misuse(BAD_USE), UNUSABLE;
  for (int i = 0; i < 100 && atomic_load(&c->active); i++) usleep(200); /* a stream that was emptied */
  if (atomic_load(&c->active)) misuse(BAD_BUSY);
  atomic_fetch_add(&inside[c->device], 1);
  return comm_end(c);
}
#ifndef NO_OPTIONAL
int HcclGroupStart(void) { return group.depth++, 0; }
int HcclGroupEnd(void) { return group_end(); }
int HcclAlltoAll(const void *src, uint64_t n, int type, const void *dst, uint64_t m, int dst_type, void *c, void *s) {
  if (n != m || type != dst_type) return BAD_ARGUMENT;
  return submit("AlltoAll", (call){ALL_TO_ALL, (char *)src, (char *)dst, n, type, 0, 0, c, 0}, s);
}
#endif
int HcclAllReduce(void *src, void *dst, uint64_t n, int type, int op, void *c, void *s) {
  return submit("AllReduce", (call){ALL_REDUCE, src, dst, n, type, op, 0, c, 0}, s);
}
int HcclReduceScatter(void *src, void *dst, uint64_t n, int type, int op, void *c, void *s) {
  return submit("ReduceScatter", (call){REDUCE_SCATTER, src, dst, n, type, op, 0, c, 0}, s);
}
int HcclAllGather(void *src, void *dst, uint64_t n, int type, void *c, void *s) {
  return submit("AllGather", (call){ALL_GATHER, src, dst, n, type, 0, 0, c, 0}, s);
}
int HcclBroadcast(void *buffer, uint64_t n, int type, uint32_t root, void *c, void *s) {
  return submit("Broadcast", (call){BROADCAST, buffer, buffer, n, type, 0, root, c, 0}, s);
}
#ifndef NO_REDUCE
int HcclReduce(void *src, void *dst, uint64_t n, int type, int op, uint32_t root, void *c, void *s) {
  return submit("Reduce", (call){REDUCE, src, dst, n, type, op, root, c, 0}, s);
}
#endif
int HcclSend(void *src, uint64_t n, int type, uint32_t peer, void *c, void *s) {
  return submit("Send", (call){SEND, src, NULL, n, type, 0, peer, c, 0}, s);
}
int HcclRecv(void *dst, uint64_t n, int type, uint32_t peer, void *c, void *s) {
  return submit("Recv", (call){RECV, NULL, dst, n, type, 0, peer, c, 0}, s);
}
static hccl_init *const check10 = HcclCommInitRootInfo;
static hccl_reduction *const check11 = HcclAllReduce;
static hccl_broadcast *const check13 = HcclBroadcast;
static hccl_message *const check14 = HcclSend;
static hccl_gather *const check15 = HcclAllGather;
__attribute__((used)) static const void *const checked_comm[] = {&check10, &check11, &check13, &check14, &check15};
#endif
