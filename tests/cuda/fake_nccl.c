/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnccl.so.2: the same functions between processes of one machine,
 * over a memfd that rank 0's unique id names. Work runs when its stream of the stand-in
 * toolkit reaches it, one launch of a communicator after the other, as with NCCL;
 * without streams (NULL) it runs while the caller asks for the communicator's state. A
 * rank that aborts is seen by the others as a remote error. $FAKE_NCCL, words with
 * commas between them:
 *     version=NUMBER   what ncclGetVersion says (22809)
 *     init=RC          ncclCommInitRankConfig fails
 *     silent=RANK      that rank never arrives when communicators are made
 *     async=N:RC       the launch number N fails on the device
 *     stuck=RANK:N     launch number N of that rank never ends
 *     split=RC         ncclCommSplit fails
 *     nomem            ncclMemAlloc fails
 * Built with FAKE_NCCL_INCOMPLETE it has no ncclCommRegister.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/fake_nccl.h"

/* Functions of the stand-in toolkit, where it is loaded. */
static struct {
    bool looked;
    __typeof__(&fakecuda_enqueue) enqueue;
    __typeof__(&fakecuda_counts_get) counts;
    __typeof__(&cudaEventCreateWithFlags) event_new;
    __typeof__(&cudaEventDestroy) event_free;
    __typeof__(&cudaEventRecord) record;
    __typeof__(&cudaStreamWaitEvent) wait;
    __typeof__(&cudaStreamQuery) query;
    __typeof__(&cudaStreamIsCapturing) capturing;
    __typeof__(&cudaMalloc) alloc;
    __typeof__(&cudaFree) free;
} cuda;

static int made_fd = -1; /* of the last unique id */
static __thread int group_depth;
static __thread struct launch *group;
static __thread cudaStream_t group_stream;

/* ---- what the environment wants -------------------------------------------------- */

const char *wish(const char *name)
{
    const char *all = getenv("FAKE_NCCL"), *at = all ? strstr(all, name) : NULL;

    return at ? at + strlen(name) : NULL;
}

/* "name=A:B": does A hold for `a`; B into *b. */
static bool wish_pair(const char *name, long *a, long *b)
{
    const char *text = wish(name);
    char *end;

    if (!text)
        return false;
    *a = strtol(text, &end, 10);
    *b = *end == ':' ? strtol(end + 1, NULL, 10) : 0;
    return true;
}

/* ---- the stand-in toolkit -------------------------------------------------------- */

static int look_in(struct dl_phdr_info *info, size_t size, void *user)
{
    void *lib =
        dlopen(info->dlpi_name[0] ? info->dlpi_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *found = lib ? dlsym(lib, "fakecuda_enqueue") : NULL;

    (void)size;
    if (found)
        *(void **)user = lib;
    else if (lib)
        dlclose(lib);
    return found != NULL;
}

static void look_for_cuda(void)
{
    void *lib = NULL;

    if (cuda.looked)
        return;
    cuda.looked = true;
    dl_iterate_phdr(look_in, &lib);
    if (!lib)
        return;
    *(void **)&cuda.enqueue = dlsym(lib, "fakecuda_enqueue");
    *(void **)&cuda.counts = dlsym(lib, "fakecuda_counts_get");
    *(void **)&cuda.capturing = dlsym(lib, "cudaStreamIsCapturing");
    *(void **)&cuda.event_new = dlsym(lib, "cudaEventCreateWithFlags");
    *(void **)&cuda.event_free = dlsym(lib, "cudaEventDestroy");
    *(void **)&cuda.record = dlsym(lib, "cudaEventRecord");
    *(void **)&cuda.wait = dlsym(lib, "cudaStreamWaitEvent");
    *(void **)&cuda.query = dlsym(lib, "cudaStreamQuery");
    *(void **)&cuda.alloc = dlsym(lib, "cudaMalloc");
    *(void **)&cuda.free = dlsym(lib, "cudaFree");
}

/* ---- messages -------------------------------------------------------------------- */

static char *chunk_of(const struct nccl_comm *c, int from, int to)
{
    return (char *)(c->world + 1) + ((size_t)from * RANKS + (size_t)to) * CHUNK;
}

/* As much of the item as can go now. */
static void move_item(struct nccl_comm *c, struct item *it)
{
    int from = it->is_send ? c->rank : it->peer, to = it->is_send ? it->peer : c->rank;
    struct channel *ch = &c->world->channel[from][to];
    char *chunk = chunk_of(c, from, to);

    while (it->done < it->bytes) {
        uint64_t sent = atomic_load(&ch->sent), taken = atomic_load(&ch->taken);
        size_t left = it->bytes - it->done, n = left < CHUNK ? left : CHUNK;

        if (it->is_send ? sent != taken : sent == taken)
            return;
        if (it->is_send) {
            memcpy(chunk, it->data + it->done, n);
            ch->bytes = n;
            ch->all_bytes += n;
            atomic_store(&ch->sent, sent + 1);
        } else {
            n = ch->bytes < n ? ch->bytes : n;
            memcpy(it->data + it->done, chunk, n);
            atomic_store(&ch->taken, taken + 1);
        }
        it->done += n;
    }
}

uint64_t fake_nccl_sent(const nccl_comm_t *c, int to)
{
    return c->world->channel[c->rank][to].all_bytes;
}

/* ---- launches -------------------------------------------------------------------- */

static void free_launch(struct launch *l)
{
    free(l->item);
    free(l->parts);
    free(l);
}

/* An aborted communicator lives as long as work on streams knows it. */
static void let_go(struct nccl_comm *c)
{
    if (!c->aborted || c->finished != c->launched)
        return;
    if (c->fd >= 0)
        close(c->fd);
    munmap(c->world, c->world_bytes);
    free(c);
}

static int end_launch(struct launch *l)
{
    struct nccl_comm *c = l->comm;

    c->finished++;
    free_launch(l);
    let_go(c);
    return 1;
}

/* Is an earlier message of the launch, to or from the same rank, still under way? Those
 * between two ranks keep their order. */
static bool is_behind(const struct launch *l, int i)
{
    for (int k = 0; k < i; k++)
        if (l->item[k].peer == l->item[i].peer &&
            l->item[k].is_send == l->item[i].is_send &&
            l->item[k].done < l->item[k].bytes)
            return true;
    return false;
}

/* 1: done, or the communicator was aborted. Never blocks. */
static int poll_launch(void *data)
{
    struct launch *l = data;
    struct nccl_comm *c = l->comm;
    bool all = true;
    long a, b;

    if (c->aborted)
        return end_launch(l);
    if (c->finished + 1 != l->number || c->error)
        return 0;
    if (wish_pair("async=", &a, &b) && (uint64_t)a == l->number) {
        c->error = (int)b;
        return 0;
    }
    if (wish_pair("stuck=", &a, &b) && a == c->rank && (uint64_t)b == l->number)
        return 0;
    for (int i = 0; i < l->items; i++) {
        if (!is_behind(l, i))
            move_item(c, &l->item[i]);
        all = all && l->item[i].done == l->item[i].bytes;
    }
    if (!all)
        return 0;
    if (l->parts)
        reduce(l);
    return end_launch(l);
}

static void put_last(struct nccl_comm *c, struct launch *l)
{
    struct launch **at = &c->waiting;

    while (*at)
        at = &(*at)->next;
    *at = l;
}

/* Number of the graph that the stream is being recorded into; 0: none. */
static uint64_t recording_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    struct fakecuda_counts counts;

    cuda.capturing(stream, &status);
    cuda.counts(&counts);
    return status == cudaStreamCaptureStatusNone ? 0 : counts.captures;
}

/* NCCL orders the launches of a communicator whatever their streams. */
static void put(struct launch *l, cudaStream_t stream)
{
    struct nccl_comm *c = l->comm;
    uint64_t recording;

    l->number = ++c->launched;
    c->starting = true;
    if (!stream) {
        put_last(c, l);
        return;
    }
    if (!c->event)
        cuda.event_new(&c->event, cudaEventDisableTiming);
    recording = recording_of(stream);
    if (c->recorded && c->last_stream != stream && c->recording == recording)
        cuda.wait(stream, c->event, 0);
    cuda.enqueue(stream, poll_launch, l);
    cuda.record(c->event, stream);
    c->last_stream = stream;
    c->recorded = true;
    c->recording = recording;
}

static struct launch *new_launch(nccl_comm_t *c)
{
    struct launch *l = calloc(1, sizeof(*l));

    l->comm = c;
    l->room = 2 * RANKS;
    l->item = calloc((size_t)l->room, sizeof(*l->item));
    return l;
}

static void add(struct launch *l, int peer, bool is_send, const void *data,
                size_t bytes)
{
    if (bytes == 0)
        return;
    if (l->items == l->room) {
        l->room *= 2;
        l->item = realloc(l->item, (size_t)l->room * sizeof(*l->item));
    }
    l->item[l->items++] =
        (struct item){ peer, is_send, (char *)(uintptr_t)data, bytes, 0 };
}

static int start(struct launch *l, cudaStream_t stream)
{
    if (stream && !cuda.enqueue) {
        free_launch(l);
        return SYSTEM_ERROR;
    }
    put(l, stream);
    return NCCL_IN_PROGRESS;
}

/* ---- the library ----------------------------------------------------------------- */

EXPORT int ncclGetVersion(int *out)
{
    const char *text = wish("version=");

    *out = text ? atoi(text) : 22809;
    return NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int rc)
{
    return rc == NCCL_REMOTE_ERROR
               ? "remote process exited or there was a network error"
           : rc == NCCL_INVALID_USAGE ? "invalid usage"
           : rc == SYSTEM_ERROR       ? "unhandled system error"
                                      : "internal error";
}

EXPORT const char *ncclGetLastError(nccl_comm_t *c)
{
    return c && c->error ? "the stand-in was asked to fail" : "";
}

int make_world(char path[128])
{
    size_t bytes = sizeof(struct world) + RANKS * RANKS * CHUNK;
    int fd = memfd_create("fake-nccl", 0);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return -1;
    memset(path, 0, 128);
    snprintf(path, 128, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return fd;
}

EXPORT int ncclGetUniqueId(struct nccl_id *out)
{
    made_fd = make_world(out->bytes);
    return made_fd < 0 ? SYSTEM_ERROR : NCCL_SUCCESS;
}

int attach(struct nccl_comm *c, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    c->world_bytes = sizeof(struct world) + RANKS * RANKS * CHUNK;
    if (fd < 0)
        return SYSTEM_ERROR;
    c->world = mmap(NULL, c->world_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return c->world == MAP_FAILED ? SYSTEM_ERROR : NCCL_SUCCESS;
}

/* The others open the memory through the descriptor of the id's maker. */
void close_made(struct nccl_comm *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

EXPORT int ncclCommInitRankConfig(nccl_comm_t **out, int size, struct nccl_id id,
                                  int rank, struct nccl_config *config)
{
    const char *rc = wish("init="), *silent = wish("silent=");
    struct nccl_comm *c;

    look_for_cuda();
    if (size > RANKS || config->magic != NCCL_CONFIG_MAGIC || config->blocking != 0 ||
        config->size < sizeof(*config))
        return INVALID_ARGUMENT;
    if (rc)
        return atoi(rc);
    c = calloc(1, sizeof(*c));
    c->rank = rank;
    c->size = size;
    c->fd = rank == 0 ? made_fd : -1;
    made_fd = rank == 0 ? -1 : made_fd;
    if (attach(c, id.bytes) != NCCL_SUCCESS) {
        close_made(c);
        free(c);
        return SYSTEM_ERROR;
    }
    if (!silent || atoi(silent) != rank)
        atomic_fetch_add(&c->world->attached, 1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

/* ---- progress -------------------------------------------------------------------- */

/* Without streams the work is done here; else streams that are asked go on. */
static void go_on(struct nccl_comm *c)
{
    while (c->waiting) {
        struct launch *l = c->waiting, *next = l->next;

        if (!poll_launch(l))
            return;
        c->waiting = next;
    }
}

/* Only who waits for a rank notices that it is gone. */
static bool needs_others(const struct nccl_comm *c)
{
    return !c->arrived || c->launched != c->finished || c->split_out;
}

static bool one_aborted(const nccl_comm_t *c)
{
    bool one = false;

    for (int r = 0; r < c->size; r++)
        one = one || atomic_load(&c->world->aborted[r]);
    return one;
}

/* Aborts are looked for first: what such a rank had sent before is then there to be
 * taken. */
EXPORT int ncclCommGetAsyncError(nccl_comm_t *c, int *out)
{
    bool aborted = one_aborted(c);

    *out = NCCL_SUCCESS;
    if (!c->arrived)
        c->arrived = atomic_load(&c->world->attached) >= c->size;
    if (c->arrived)
        close_made(c);
    go_on(c);
    if (c->split_out && !c->error)
        go_on_splitting(c);
    if (aborted && !c->error && needs_others(c))
        c->error = NCCL_REMOTE_ERROR;
    if (c->error)
        *out = c->error;
    else if (!c->arrived || c->waiting || c->starting || c->split_out)
        *out = NCCL_IN_PROGRESS;
    c->starting = false;
    return NCCL_SUCCESS;
}

/* What is on streams is done when they are asked. */
EXPORT int ncclCommFinalize(nccl_comm_t *c)
{
    while (c->finished != c->launched && c->last_stream && !c->error)
        cuda.query(c->last_stream);
    return c->finished == c->launched ? NCCL_SUCCESS : NCCL_INVALID_USAGE;
}

EXPORT int ncclCommAbort(nccl_comm_t *c)
{
    atomic_store(&c->world->aborted[c->rank], true);
    c->aborted = true;
    while (c->waiting) {
        struct launch *l = c->waiting;

        c->waiting = l->next;
        c->finished++;
        free_launch(l);
    }
    if (c->event)
        cuda.event_free(c->event);
    let_go(c);
    return NCCL_SUCCESS;
}

EXPORT int ncclCommDestroy(nccl_comm_t *c)
{
    if (c->registered) /* nobody could do anything about an error any more */
        abort();
    if (c->event)
        cuda.event_free(c->event);
    c->aborted = true;
    let_go(c);
    return NCCL_SUCCESS;
}

/* ---- collectives ----------------------------------------------------------------- */

EXPORT int ncclAllGather(const void *in, void *out, size_t elems, int type,
                         nccl_comm_t *c, void *stream)
{
    size_t bytes = elems * size_of(type);
    struct launch *l = new_launch(c);

    for (int r = 0; r < c->size; r++) {
        char *to = (char *)out + (size_t)r * bytes;

        if (r == c->rank && to == in)
            continue; /* in place */
        add(l, r, true, in, bytes);
        add(l, r, false, to, bytes);
    }
    return start(l, stream);
}

static int reduce_all(const void *in, size_t step, void *out, size_t elems, int type,
                      int op, nccl_comm_t *c, void *stream)
{
    size_t bytes = elems * size_of(type);
    struct launch *l = new_launch(c);

    l->parts = malloc((size_t)c->size * bytes + 1);
    l->out = out;
    l->elems = elems;
    l->type = type;
    l->op = op;
    for (int r = 0; r < c->size; r++) {
        add(l, r, true, (const char *)in + (size_t)r * step, bytes);
        add(l, r, false, l->parts + (size_t)r * bytes, bytes);
    }
    return start(l, stream);
}

EXPORT int ncclAllReduce(const void *in, void *out, size_t elems, int type, int op,
                         nccl_comm_t *c, void *stream)
{
    return reduce_all(in, 0, out, elems, type, op, c, stream);
}

EXPORT int ncclReduceScatter(const void *in, void *out, size_t elems, int type, int op,
                             nccl_comm_t *c, void *stream)
{
    return reduce_all(in, elems * size_of(type), out, elems, type, op, c, stream);
}

EXPORT int ncclBroadcast(const void *in, void *out, size_t elems, int type, int root,
                         nccl_comm_t *c, void *stream)
{
    size_t bytes = elems * size_of(type);
    struct launch *l = new_launch(c);

    for (int r = 0; c->rank == root && r < c->size; r++)
        if (r != root)
            add(l, r, true, in, bytes);
    if (c->rank != root)
        add(l, root, false, out, bytes);
    return start(l, stream);
}

/* ---- groups ---------------------------------------------------------------------- */

EXPORT int ncclGroupStart(void)
{
    group_depth++;
    return NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    struct launch *l = group;

    if (group_depth == 0)
        return NCCL_INVALID_USAGE;
    if (--group_depth > 0 || !l)
        return NCCL_SUCCESS;
    group = NULL;
    return start(l, group_stream);
}

static int message(nccl_comm_t *c, int peer, bool is_send, const void *data,
                   size_t bytes, void *stream)
{
    /* of nothing, a send and a receive need not both be there: accel makes neither */
    if (group_depth == 0 || peer < 0 || peer >= c->size || bytes == 0)
        return NCCL_INVALID_USAGE;
    if (!group) {
        group = new_launch(c);
        group_stream = stream;
    }
    if (group->comm != c || group_stream != stream)
        return NCCL_INVALID_USAGE;
    add(group, peer, is_send, data, bytes);
    return NCCL_IN_PROGRESS; /* as NCCL may say until the group ends */
}

EXPORT int ncclSend(const void *in, size_t elems, int type, int peer, nccl_comm_t *c,
                    void *stream)
{
    return message(c, peer, true, in, elems * size_of(type), stream);
}

EXPORT int ncclRecv(void *out, size_t elems, int type, int peer, nccl_comm_t *c,
                    void *stream)
{
    return message(c, peer, false, out, elems * size_of(type), stream);
}

/* ---- memory ---------------------------------------------------------------------- */

/* Never zeroed: who needs that must do it. */
EXPORT int ncclMemAlloc(void **out, size_t bytes)
{
    look_for_cuda();
    if (wish("nomem"))
        return SYSTEM_ERROR;
    if (cuda.alloc)
        return cuda.alloc(out, bytes) == 0 ? NCCL_SUCCESS : SYSTEM_ERROR;
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*out)
        return SYSTEM_ERROR;
    memset(*out, 0xa5, bytes);
    return NCCL_SUCCESS;
}

EXPORT int ncclMemFree(void *p)
{
    if (cuda.free)
        return cuda.free(p) == 0 ? NCCL_SUCCESS : SYSTEM_ERROR;
    free(p);
    return NCCL_SUCCESS;
}

#ifndef FAKE_NCCL_INCOMPLETE
EXPORT int ncclCommRegister(nccl_comm_t *c, void *p, size_t bytes, void **out)
{
    if (!p || bytes == 0)
        return INVALID_ARGUMENT;
    c->registered++;
    *out = p;
    return NCCL_SUCCESS;
}
#endif

EXPORT int ncclCommDeregister(nccl_comm_t *c, void *handle)
{
    if (!handle || c->registered == 0)
        return INVALID_ARGUMENT;
    c->registered--;
    return NCCL_SUCCESS;
}
