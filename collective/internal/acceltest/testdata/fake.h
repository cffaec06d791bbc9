/* What the parts of the fake libraries share; see fake.c. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define MAX_RANKS 8
#define SLOT_BYTES 32768

/* What a caller may do wrong. The sum of those that were done is in the counters. */
enum {
  BAD_CONCURRENT = 1,  /* two threads in calls about one device */
  BAD_DEVICE = 2,      /* another device is current, or none */
  BAD_USE = 4,         /* of a handle that has ended or never was */
  BAD_THREAD = 8,      /* a communicator is used by more than one thread */
  BAD_BUSY = 16,       /* a call while the one before is in progress, or an end while it works */
  BAD_ID = 32,         /* an id that was not handed over whole, or used again */
  BAD_MEMORY = 64,     /* a copy from or to memory of the host that is not page-locked */
  BAD_CONFIG = 128,    /* a configuration that is not one */
};

/* The file "stats" in the folder that FAKE_CCL_DIR names. */
typedef struct {
  _Atomic int64_t comms, streams, events, bytes, host_bytes, misuse, aborts, devices;
} counters;

extern counters *stats;
void misuse(int what);
int fault(const char *call, int device);

/* Ranks of a communicator, in this and other processes, meet in a file. */
typedef struct {
  _Atomic uint64_t joined[MAX_RANKS], arrived[MAX_RANKS], finalized[MAX_RANKS], aborted[MAX_RANKS];
  _Atomic uint64_t print[MAX_RANKS]; /* of the call that a rank is in */
  char slot[MAX_RANKS][SLOT_BYTES];
  struct {
    _Atomic int full;
    uint64_t print, bytes;
    char data[4096];
  } mail[MAX_RANKS][MAX_RANKS]; /* from, to */
} world;

typedef struct comm {
  int magic, n, rank, device, blocking;
  char name[100];
  world *w;
  uint64_t phase;
  _Atomic int async, stopped, active, busy, calls;
  _Atomic long thread;
  double scalar;
  struct comm *child;
  struct comm **child_to;
  int child_after;
} comm;

typedef struct {
  int what; /* as below */
  char *src, *dst;
  size_t count;
  int type, op, root;
  comm *c;
  size_t sent; /* of a message */
} call;

enum { ALL_REDUCE = 1, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, ALL_TO_ALL, SEND, RECV };
enum { PREMUL = 64 }; /* an operation of its own */

typedef struct stream stream;
extern __thread int current; /* device of this thread, -1 for none */
void enqueue_calls(stream *, call *, int n);
int stream_device(stream *);
int stream_stopped(stream *);
/* run carries out calls on the thread of a stream. It returns early when they are stopped. */
void run(stream *, call *, int n);

int type_bytes(int type);
void combine(int type, int op, double scalar, int n, char *const *src, char *dst, size_t count);
