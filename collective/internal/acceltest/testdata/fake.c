/* A vendor's two libraries over memory of the host: a stream is a thread, and ranks meet in
 * files of the folder that FAKE_CCL_DIR names, so that they may be in several processes.
 * One source for all vendors: -DVENDOR=1 to 4 as in shim.h, and
 *   VERSION      that the library states
 *   NO_OPTIONAL  none of the functions that a library may lack
 *   NO_REDUCE    a function is missing that a library may not lack
 *   METAX        with a function of another vendor
 * FAKE_CCL_FAIL is a list of CALL:DEVICE:N:CODE: the Nth call of that name on a device fails;
 * "async" is what runs on the device: it reports the code later, and stays stuck, as "stall"
 * does without a word; "block" keeps the caller for as many milliseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

counters *stats;
__thread int current = -1;

void misuse(int what) { atomic_fetch_or(&stats->misuse, what); }

/* shared maps a file of the folder. */
static void *shared(const char *name, size_t bytes) {
  char path[512];
  const char *dir = getenv("FAKE_CCL_DIR");
  snprintf(path, sizeof path, "%s/%s", dir ? dir : "/nonexistent", name);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, bytes) != 0) {
    perror(path);
    abort();
  }
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) abort();
  return p;
}

static char *faults;
static _Atomic int fault_count[16];

__attribute__((constructor)) static void load(void) {
  stats = shared("stats", sizeof *stats);
  if (getenv("FAKE_CCL_FAIL")) faults = strdup(getenv("FAKE_CCL_FAIL"));
}

int fault(const char *name, int device) {
  char *at = faults;
  for (int i = 0; at && *at && i < 16; i++) {
    char what[32];
    int on, n, code, used = 0;
    if (sscanf(at, "%31[^:]:%d:%d:%d%n", what, &on, &n, &code, &used) < 4) return 0;
    if (!strcmp(what, name) && on == device && atomic_fetch_add(&fault_count[i], 1) + 1 == n) return code;
    at += used;
    if (*at == ',') at++;
  }
  return 0;
}

/* Streams. */
typedef struct item {
  struct item *next;
  call *calls;
  int n;
  _Atomic int *event;
  char *to, *from; /* of a copy */
  size_t bytes;
} item;

struct stream {
  int magic, device, quit;
  _Atomic int stopped;
  pthread_t thread;
  pthread_mutex_t mu;
  pthread_cond_t changed;
  item *first, *last;
};
#define STREAM_MAGIC 0x57123a

int stream_device(stream *s) { return s->device; }
int stream_stopped(stream *s) { return atomic_load(&s->stopped); }

static void *serve(void *arg) {
  stream *s = arg;
  for (;;) {
    pthread_mutex_lock(&s->mu);
    while (!s->first && !s->quit) pthread_cond_wait(&s->changed, &s->mu);
    item *i = s->first;
    if (!i) {
      pthread_mutex_unlock(&s->mu);
      return NULL;
    }
    pthread_mutex_unlock(&s->mu);
    if (i->calls) run(s, i->calls, i->n);
    if (i->bytes && !stream_stopped(s)) memcpy(i->to, i->from, i->bytes);
    if (i->event && !stream_stopped(s)) atomic_store(i->event, 1);
    pthread_mutex_lock(&s->mu);
    if (!(s->first = i->next)) s->last = NULL, atomic_store(&s->stopped, 0);
    pthread_mutex_unlock(&s->mu);
    free(i->calls);
    free(i);
  }
}

static void enqueue(stream *s, item from) {
  item *i = malloc(sizeof *i);
  *i = from;
  pthread_mutex_lock(&s->mu);
  if (s->last) s->last->next = i;
  else s->first = i;
  s->last = i;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mu);
}

void enqueue_calls(stream *s, call *calls, int n) {
  call *copy = malloc(n * sizeof *copy);
  memcpy(copy, calls, n * sizeof *copy);
  for (int i = 0; i < n; i++) atomic_fetch_add(&copy[i].c->active, 1);
  enqueue(s, (item){.calls = copy, .n = n});
}

static int stream_create(void **to) {
  if (current < 0) return misuse(BAD_DEVICE), 201;
  stream *s = calloc(1, sizeof *s);
  s->magic = STREAM_MAGIC;
  s->device = current;
  pthread_mutex_init(&s->mu, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_create(&s->thread, NULL, serve, s);
  atomic_fetch_add(&stats->streams, 1);
  *to = s;
  return 0;
}

static int stream_check(stream *s) {
  if (!s || s->magic != STREAM_MAGIC) return misuse(BAD_USE), 400;
  if (s->device != current) return misuse(BAD_DEVICE), 201;
  return 0;
}

/* stream_destroy waits for what is in the stream, as some libraries do. */
static int stream_destroy(void *handle) {
  stream *s = handle;
  if (stream_check(s)) return 400;
  pthread_mutex_lock(&s->mu);
  s->quit = 1;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mu);
  pthread_join(s->thread, NULL);
  s->magic = 0;
  atomic_fetch_sub(&stats->streams, 1);
  return 0;
}

static int event_create(void **to) {
  if (current < 0) return misuse(BAD_DEVICE), 201;
  *to = calloc(1, sizeof(_Atomic int));
  atomic_fetch_add(&stats->events, 1);
  return 0;
}

static int event_record(void *event, void *s) {
  if (stream_check(s)) return 400;
  atomic_store((_Atomic int *)event, 0);
  enqueue(s, (item){.event = event});
  return 0;
}

static int event_done(void *event) { return atomic_load((_Atomic int *)event); }

/* event_destroy leaves the memory, in which a stream may still note that it has happened. */
static int event_destroy(void *event) {
  (void)event;
  atomic_fetch_sub(&stats->events, 1);
  return 0;
}

/* Memory: its size is in front of it. */
#define FRONT 64
static int memory_alloc(void **to, size_t bytes, _Atomic int64_t *total) {
  if (current < 0) return misuse(BAD_DEVICE), 201;
  int code = fault("alloc", current);
  if (code) return code;
  char *p = malloc(bytes + FRONT);
  memset(p + FRONT, 0xa5, bytes);
  *(size_t *)p = bytes;
  atomic_fetch_add(total, bytes);
  *to = p + FRONT;
  return 0;
}

static int memory_free(void *p, _Atomic int64_t *total) {
  if (current < 0) return misuse(BAD_DEVICE), 201;
  char *front = (char *)p - FRONT;
  atomic_fetch_sub(total, *(size_t *)front);
  *(size_t *)front = 0;
  free(front);
  return 0;
}

static struct {
  char *p;
  size_t bytes;
} locked[64];
static pthread_mutex_t locked_mu = PTHREAD_MUTEX_INITIALIZER;

static int host_alloc(void **to, size_t bytes) {
  int code = memory_alloc(to, bytes, &stats->host_bytes);
  pthread_mutex_lock(&locked_mu);
  for (int i = 0; !code && i < 64; i++) {
    if (locked[i].p) continue;
    locked[i].p = *to, locked[i].bytes = bytes;
    break;
  }
  pthread_mutex_unlock(&locked_mu);
  return code;
}

static int host_free(void *p) {
  pthread_mutex_lock(&locked_mu);
  for (int i = 0; i < 64; i++)
    if (locked[i].p == p) locked[i].p = NULL;
  pthread_mutex_unlock(&locked_mu);
  return memory_free(p, &stats->host_bytes);
}

static int copy(void *to, const void *from, size_t bytes, const void *host, stream *s) {
  if (stream_check(s)) return 400;
  int ok = !host;
  pthread_mutex_lock(&locked_mu);
  for (int i = 0; i < 64; i++)
    ok |= locked[i].p && (char *)host >= locked[i].p && (char *)host + bytes <= locked[i].p + locked[i].bytes;
  pthread_mutex_unlock(&locked_mu);
  if (!ok) misuse(BAD_MEMORY);
  enqueue(s, (item){.to = to, .from = (char *)from, .bytes = bytes});
  return 0;
}

static int device_count(void) {
  const char *n = getenv("FAKE_CCL_DEVICES");
  return n ? atoi(n) : 8;
}

#include "runtime.h"
#include "comm.h"
