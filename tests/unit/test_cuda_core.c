/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA module's core: address ranges, copies that return early, queues and events,
 * ids out of range; on the stand-in toolkit also too little memory and the loss of the
 * device.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "tensor/graph.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

#define MIB ((size_t)1 << 20)

static struct {
    void (*reset)(void);
    void (*lose)(int error);
} fake;

/* One of the stand-in has that much memory. */
static struct backend *open_one(const char *memory)
{
    if (fake.reset) {
        setenv("FAKE_CUDA_MEMORY", memory, 1);
        fake.reset();
    }
    return cuda_device();
}

static void *get(const struct backend *be, enum backend_memory kind, size_t bytes)
{
    accel_error_t err;
    void *p = NULL;

    if (be->alloc(be, kind, bytes, &p, &err))
        tap_diag("%s", err.text);
    return p;
}

static void test_open(void)
{
    struct backend *be = open_one("1073741824");

    tap_is_str(be->name, "cuda", "name");
    tap_ok(!strncmp(be->isa, "sm_", 3) && strstr(be->isa, ", CUDA ") &&
               strstr(be->isa, ", driver ") && strstr(be->isa, ", cuBLAS "),
           "isa: %s", be->isa);
    tap_ok(be->device && !be->shapes_only, "its memory is not the host's");
    if (fake.reset)
        tap_is_int((long long)be->memory_bytes, 1 << 30, "memory of the device");
    else
        tap_ok(be->memory_bytes >= (size_t)1 << 30, "memory of the device");
    tap_is_int(be->queue(be), QUEUE_COMPUTE, "compute is the queue in use");
    be->close(be);
}

static char *driver_file;

/* In place of the C library's, which it calls, also for the module: the file of a GPU's
 * driver. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static __typeof__(&fopen) real;

    if (driver_file && !strcmp(path, "/proc/driver/nvidia/version"))
        return fmemopen(driver_file, strlen(driver_file), "r");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(path, mode);
}

static void test_driver(void)
{
    static const struct {
        char *file, *want;
    } rows[] = {
        { "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
          "Release\n",
          ", driver 580.65.06, " },
        { "NVRM version: no number\n", ", driver for CUDA " },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct backend *be;

        driver_file = rows[i].file;
        be = open_one("268435456");
        tap_ok(strstr(be->isa, rows[i].want), "the driver's release: %s", be->isa);
        be->close(be);
    }
    driver_file = NULL;
}

/* What a message says of kinds, and that lack of memory is not the end. */
static void test_alloc(void)
{
    struct backend *be = open_one("536870912");
    void *p = get(be, MEMORY_PARAMETERS, 64 * MIB);
    void *m = get(be, MEMORY_MOMENTS, 32 * MIB), *none = NULL, *q;
    accel_error_t err = { 0 };
    unsigned char byte[4096];
    size_t wrong = 0;

    memset(byte, 1, sizeof(byte));
    be->to_host_bytes(be, byte, (char *)p + 64 * MIB - sizeof(byte), sizeof(byte));
    for (size_t i = 0; i < sizeof(byte); i++)
        wrong += byte[i] != 0;
    tap_is_int((long long)wrong, 0, "memory is zero, to its end");
    tap_is_int(be->alloc(be, MEMORY_ACTIVATIONS, 1024 * MIB, &none, &err), ACCEL_ENOMEM,
               "too much");
    tap_is_int(err.message, 447, "A0447");
    if (!tap_ok(!none && strstr(err.text, "1.0 GiB for activations") &&
                    strstr(err.text, "parameters 64.0 MiB") &&
                    strstr(err.text, "moments 32.0 MiB") &&
                    strstr(err.text, "of 512.0 MiB are free") &&
                    strstr(err.hint, "fsdp_activation_checkpointing"),
                "what was asked, what is held by kind, what is free, what helps"))
        tap_diag("%s / %s", err.text, err.hint);
    tap_is_int(be->check(be, &err), ACCEL_OK, "no failure of the device");
    be->free(be, m);
    be->free(be, NULL);
    be->alloc(be, MEMORY_GATHERED, 1024 * MIB, &none, &err);
    tap_ok(!strstr(err.text, "moments") && strstr(err.hint, "wrap smaller modules"),
           "what was freed is no longer held; each kind has its cure");
    q = get(be, MEMORY_BUFFERS, 0);
    tap_ok(q != NULL, "nothing at all can be asked for");
    be->free(be, q);
    be->free(be, p);
    tap_is_int(be->sync(be, &err), ACCEL_OK, "sync");
    be->close(be);
}

static void test_range(void)
{
    struct backend *be = open_one("268435456");
    char *base = be->reserve(be, 1024 * MIB);
    char there[8] = "", mark[8] = "32 MiB";

    tap_ok(base != NULL, "more addresses than memory");
    tap_ok(be->commit(be, base, 0, 32 * MIB), "memory behind its beginning");
    tap_ok(be->commit(be, base, 32 * MIB, 96 * MIB), "and more");
    be->from_host(be, base + 32 * MIB - 4, mark, sizeof(mark));
    be->to_host_bytes(be, there, base + 32 * MIB - 4, sizeof(there));
    tap_is_str(there, mark, "one range across both");
    be->release(be, base, 1024 * MIB, 96 * MIB);
    be->close(be);
}

static void test_full_range(void)
{
    struct backend *be = open_one("268435456");
    char *base = be->reserve(be, 1024 * MIB);
    accel_error_t err = { 0 };

    tap_ok(base && be->commit(be, base, 0, 96 * MIB), "96 MiB");
    tap_ok(!be->commit(be, base, 96 * MIB, 1024 * MIB), "more than there is");
    tap_is_int(be->check(be, &err), ACCEL_ENOMEM, "check tells");
    if (!tap_ok(strstr(err.text, "928.0 MiB for activations") &&
                    strstr(err.text, "activations 96.0 MiB"),
                "what was asked and is held"))
        tap_diag("%s", err.text);
    be->release(be, base, 1024 * MIB, 96 * MIB);
    be->close(be);

    be = open_one("268435456");
    base = be->reserve(be, 128 * MIB);
    tap_ok(be->commit(be, base, 0, 128 * MIB), "128 MiB");
    be->release(be, base, 128 * MIB, 128 * MIB);
    base = be->reserve(be, 224 * MIB);
    tap_ok(base && be->commit(be, base, 0, 192 * MIB), "released memory is free again");
    be->close(be); /* with a range */
}

/* The arena's lack of memory is told in the device's words. */
static void test_graph(void)
{
    struct backend *be = open_one("268435456");
    accel_error_t err;
    struct graph g;

    tap_is_int(graph_open(&g, be, ACCEL_F32, false, &err), ACCEL_OK, "a graph");
    tap_ok(graph_tensor(&g, ACCEL_F32, 2, (int64_t[]){ 1024, 1024 }) != NULL, "4 MiB");
    tap_ok(!graph_tensor(&g, ACCEL_F32, 2, (int64_t[]){ 7680, 8192 }), "240 MiB more");
    tap_is_int(g.error.message, 447, "A0447");
    if (!tap_ok(strstr(g.error.text, "for activations") && g.error.where[0],
                "what for, and where"))
        tap_diag("%s: %s", g.error.where, g.error.text);
    graph_close(&g);
    be->close(be);
}

/* Twice all staging buffers, changed by the caller as soon as a call returns. */
static void test_copies(void)
{
    enum { BYTES = 64 << 20, PIECE = 4 << 20 };
    struct backend *be = open_one("268435456");
    unsigned char *host = malloc(PIECE), *back = malloc(BYTES);
    unsigned char *locked = be->host_alloc(be, 2 * MIB);
    unsigned char *dev = get(be, MEMORY_WORK, BYTES);
    const float values[5] = { 1, -2.5f, 3, 4, 0 };
    float got[5] = { 0 };
    uint16_t narrow[5];
    size_t wrong = 0;

    for (size_t at = 0; at < BYTES; at += PIECE) {
        memset(host, (int)(at / PIECE) + 1, PIECE);
        be->from_host(be, dev + at, host, PIECE);
        memset(host, 0xee, PIECE);
    }
    be->to_host_bytes(be, back, dev, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        wrong += back[i] != i / PIECE + 1;
    tap_is_int((long long)wrong, 0, "host memory may be changed at once");
    be->copy(be, dev, dev + 5 * PIECE, 2 * MIB);
    be->to_host_bytes(be, locked, dev, 2 * MIB);
    tap_is_int(locked[0] + locked[2 * MIB - 1], 12, "into page-locked memory");
    be->zero(be, dev, 7);
    be->to_host_bytes(be, back, dev, 8);
    tap_ok(back[0] == 0 && back[6] == 0 && back[7] == 6, "zero, not more");
    for (int i = 0; i < 5; i++)
        narrow[i] = f32_to_bf16(values[i]);
    be->from_host(be, dev, narrow, sizeof(narrow));
    be->to_host(be, got, dev, ACCEL_BF16, 5);
    tap_ok(!memcmp(got, values, sizeof(got)), "bfloat16 as float32");
    be->from_host(be, dev, (int64_t[]){ -7, 1 << 20 }, 16);
    be->to_host(be, got, dev, ACCEL_I64, 2);
    tap_ok(got[0] == -7 && got[1] == 1 << 20, "int64 as float32");
    be->from_host(be, dev, (int8_t[]){ -128, 127 }, 2);
    be->to_host(be, got, dev, ACCEL_I8, 2);
    tap_ok(got[0] == -128 && got[1] == 127, "int8 as float32");
    be->copy(be, dev, dev, 0);
    be->from_host(be, dev, host, 0);
    be->to_host(be, got, dev, ACCEL_F32, 0);
    tap_is_int(be->sync(be, NULL), ACCEL_OK, "copies of nothing are none");
    be->host_free(be, locked, 2 * MIB);
    be->host_free(be, NULL, 0);
    free(host);
    free(back);
    be->close(be);
}

/* The stand-in does work as late as it can: without the wait, y would be the old x. */
static void test_events(void)
{
    struct backend *be = open_one("268435456");
    struct backend_event *filled = be->event_new(be), *read = be->event_new(be);
    struct backend_event *never = be->event_new(be);
    float *x = get(be, MEMORY_WORK, 16), *y = get(be, MEMORY_WORK, 16), got = 0;

    be->wait(be, QUEUE_COMPUTE, never);
    be->wait(be, QUEUE_COMPUTE, NULL);
    be->record(be, NULL, QUEUE_COMPUTE);
    for (int i = 1; i <= 3; i++) {
        float v = (float)i;

        be->wait(be, QUEUE_COPY, read);
        be->use(be, QUEUE_COPY);
        be->from_host(be, x, &v, sizeof(v));
        be->record(be, filled, QUEUE_COPY);
        be->wait(be, QUEUE_COMPUTE, filled);
        be->use(be, QUEUE_COMPUTE);
        be->copy(be, y, x, sizeof(v));
        be->record(be, read, QUEUE_COMPUTE);
    }
    tap_is_int(be->queue(be), QUEUE_COMPUTE, "the queue in use");
    be->to_host(be, &got, y, ACCEL_F32, 1);
    tap_ok(got == 3, "queues in the order of their events (%g)", (double)got);
    tap_ok(be->native(be, QUEUE_GATHER) != be->native(be, QUEUE_COMPUTE),
           "queues are streams of their own");
    be->event_free(be, filled);
    be->event_free(be, read);
    be->event_free(be, never);
    be->event_free(be, NULL);
    tap_is_int(be->sync(be, NULL), ACCEL_OK, "sync");
    be->close(be);
}

static void test_bad_ids(void)
{
    struct backend *be = open_one("268435456");
    float *table = get(be, MEMORY_PARAMETERS, 40), *out = get(be, MEMORY_WORK, 48);
    int32_t *ids = get(be, MEMORY_WORK, 12);
    accel_error_t err = { 0 };

    be->from_host(be, ids, (int32_t[]){ 4, 7, -1 }, 12);
    be->mark(be, &(struct backend_mark){ .op = "embedding", .path = "wte" });
    tap_is_int(be->embed(be, out, ids, table, NULL, ACCEL_F32, 3, 3, 10, 1), -1,
               "ids in range, as far as is known");
    tap_is_int(be->check(be, &err), ACCEL_OK, "the device has not told yet");
    be->mark(be, &(struct backend_mark){ .op = "linear", .path = "head" });
    tap_is_int(be->sync(be, &err), ACCEL_EINVAL, "sync knows");
    tap_is_str(err.where, "wte: embedding", "the op that met it");
    tap_is_str(err.text,
               "id 2 of the batch is not in [0, 10): position 2 of sequence 0",
               "in the CPU's words");
    be->close(be);
}

/* The first op's first row is told, whatever follows before the host waits. */
static void test_first_bad_id(void)
{
    struct backend *be = open_one("268435456");
    float *table = get(be, MEMORY_PARAMETERS, 40), *out = get(be, MEMORY_WORK, 96);
    float *lse = get(be, MEMORY_WORK, 16), *loss = get(be, MEMORY_WORK, 16);
    int32_t *ids = get(be, MEMORY_WORK, 24);
    const struct xent how = { .ignore = -1, .first = 4, .time = 3 };
    accel_error_t err = { 0 };

    be->mark(be, &(struct backend_mark){ "embedding", "a", false, 1, 4 });
    be->zero(be, ids, 24);
    be->embed(be, out, ids, table, NULL, ACCEL_F32, 6, 3, 10, 1);
    be->mark(be, NULL);
    be->mark(be, &(struct backend_mark){ "embedding", "b", false, 2, 4 });
    be->embed(be, out, ids, table, NULL, ACCEL_F32, 6, 3, 10, 1);
    /* the second chunk of its rows */
    be->mark(be, &(struct backend_mark){ "cross_entropy", "c", false, 2, 4 });
    be->zero(be, out, 96);
    be->from_host(be, ids, (int32_t[]){ 2, 3, 0, 9, 9, 9 }, 24);
    be->xent(be, &how, lse, loss, out, ids, 2, 3, 3);
    be->mark(be, NULL);
    /* as late as the rows of a micro-batch may be, and of an op with fewer ids */
    be->mark(be, &(struct backend_mark){ "embedding", "d", false, 3, 4 });
    be->embed(be, out, ids, table, NULL, ACCEL_F32, 6, 3, 2, 1);
    tap_is_int(be->sync(be, &err), ACCEL_EINVAL, "two of four micro-batches are bad");
    tap_is_str(err.where, "c: cross_entropy", "the first one is told");
    tap_is_str(err.text,
               "target 5 of the batch is not below 3: position 2 of sequence 1, "
               "micro-batch 2 of 4",
               "with its place");
    be->close(be);
}

/* What is remembered of ops is limited: a step may have any number of them. */
static void test_many_bad_ids(void)
{
    struct backend *be = open_one("268435456");
    float *table = get(be, MEMORY_PARAMETERS, 40), *out = get(be, MEMORY_WORK, 4);
    int32_t *id = get(be, MEMORY_WORK, 4);
    accel_error_t err = { 0 };

    be->from_host(be, id, (int32_t[]){ 10 }, 4);
    for (int i = 0; i < 300; i++) {
        be->mark(be, &(struct backend_mark){ "embedding", "wte", false, i + 1, 300 });
        be->embed(be, out, id, table, NULL, ACCEL_F32, 1, 1, 10, 1);
        be->mark(be, NULL);
    }
    tap_is_int(be->sync(be, &err), ACCEL_EINVAL, "300 micro-batches are bad");
    tap_is_str(err.text, "id 0 of an earlier batch is out of range",
               "nobody knows the first one any more");
    be->close(be);
}

/* The last id and class that there are, the first that there is not, and below. */
static void test_edges_of_ids(void)
{
    static const struct {
        int32_t value;
        bool id, target; /* may it be one? Targets below 0 are not counted. */
    } c[] = {
        { 0, true, true },           { 9, true, true },   { 10, false, false },
        { INT32_MAX, false, false }, { -1, false, true }, { INT32_MIN, false, true },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        struct backend *be = open_one("268435456");
        float *table = get(be, MEMORY_PARAMETERS, 40), *out = get(be, MEMORY_WORK, 40);
        float *lse = get(be, MEMORY_WORK, 4), *loss = get(be, MEMORY_WORK, 4);
        int32_t *value = get(be, MEMORY_WORK, 4);
        const struct xent how = { .ignore = -1 };

        be->from_host(be, value, &c[i].value, 4);
        be->zero(be, table, 40);
        be->xent(be, &how, lse, loss, table, value, 1, 10, 10);
        tap_is_int(be->sync(be, NULL), c[i].target ? ACCEL_OK : ACCEL_EINVAL,
                   "%d as one of 10 classes", (int)c[i].value);
        if (c[i].target) {
            be->embed(be, out, value, table, NULL, ACCEL_F32, 1, 1, 10, 1);
            tap_is_int(be->sync(be, NULL), c[i].id ? ACCEL_OK : ACCEL_EINVAL,
                       "as an id of 10 rows");
        }
        be->close(be);
    }
}

/* ---- which op it was ------------------------------------------------------------- */

/* Ops of modules p0, p1 ..., a kernel each. */
static void run_ops(const struct backend *be, float *x, int first, int count)
{
    static char path[64][8];

    for (int i = first; i < first + count; i++) {
        snprintf(path[i], sizeof(path[i]), "p%d", i);
        be->mark(be, &(struct backend_mark){
                         .op = "fill", .path = path[i], .backward = i >= 32 });
        be->fill(be, x, ACCEL_F32, 8, 2.0f);
    }
}

/* A failure that comes late is that of an op which was not known to be over. */
static void test_late(void)
{
    struct backend *be = open_one("268435456");
    float *x = get(be, MEMORY_WORK, 64);
    accel_error_t err = { 0 };

    be->mark(be, NULL);
    run_ops(be, x, 0, 20);
    tap_is_int(be->sync(be, &err), ACCEL_OK, "20 ops are over");
    run_ops(be, x, 20, 20);
    fake.lose(719);
    tap_is_int(accel_exit_code(be->sync(be, &err)), 69, "then the device is lost: 69");
    tap_is_str(err.where, "in or after p19: fill", "since the op of the last wait");
    tap_ok(strstr(err.text, "; last op on the GPU: p39: fill (backward)"),
           "up to the last one: %s", err.text);
    tap_ok(strstr(err.hint, "CUDA_LAUNCH_BLOCKING=1"), "and how to know: %s", err.hint);
    be->close(be);
    fake.reset();
}

/* The device tells every 16 ops how far it is; it need not be waited for. */
static void test_progress(void)
{
    struct backend *be;
    accel_error_t err = { 0 };
    float *x;

    setenv("FAKE_CUDA_ORDER", "eager", 1);
    be = open_one("268435456");
    x = get(be, MEMORY_WORK, 64);
    be->mark(be, NULL);
    run_ops(be, x, 0, 40);
    fake.lose(700);
    run_ops(be, x, 40, 1);
    tap_is_int(be->check(be, &err), ACCEL_EUNAVAIL, "the next kernel tells");
    tap_is_str(err.where, "in or after p32: fill (backward)", "32 ops were over");
    be->close(be);
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    be = open_one("268435456");
    x = get(be, MEMORY_WORK, 64);
    run_ops(be, x, 0, 3);
    fake.lose(700);
    run_ops(be, x, 3, 1);
    be->check(be, &err);
    tap_is_str(err.where, "p3: fill", "launches that wait tell the op itself");
    be->close(be);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    unsetenv("FAKE_CUDA_ORDER");
    fake.reset();
}

/* Scratch that is not there: the op that asked, what it asked for, who holds the
 * rest. */
static void test_op_memory(void)
{
    struct backend *be = open_one("268435456");
    float *x = get(be, MEMORY_ACTIVATIONS, 1 << 20);
    struct gemm p = { .m = 2,
                      .n = 4,
                      .k = 4,
                      .a = x,
                      .a_type = ACCEL_BF16,
                      .lda = 1 << 28,
                      .b = x,
                      .ldb = 4,
                      .c = x,
                      .ldc = 4 };
    accel_error_t err = { 0 };

    run_ops(be, x, 0, 2);
    be->mark(be,
             &(struct backend_mark){ .op = "linear", .path = "", .backward = true });
    be->gemm(be, &p);
    tap_is_int(be->sync(be, &err), ACCEL_ENOMEM, "no scratch of 1 GiB");
    tap_is_str(err.where, "model: linear (backward)", "the op that asked");
    tap_ok(strstr(err.text, "1.0 GiB for working memory") &&
               strstr(err.text, "activations 1.0 MiB"),
           "what, and who holds the rest: %s", err.text);
    tap_ok(strstr(err.hint, "smaller batch"), "what helps: %s", err.hint);
    be->close(be);
    fake.reset();
}

/* After the ops of a micro-batch; and before those of the next one, whose names are
 * new. */
static void test_no_op(void)
{
    struct backend *be = open_one("268435456");
    float *x = get(be, MEMORY_WORK, 64);
    accel_error_t err = { 0 };

    run_ops(be, x, 0, 2);
    be->step_end(be);
    fake.lose(700);
    be->sync(be, &err);
    tap_ok(strstr(err.text, "; last op on the GPU: gradients and optimizer step"),
           "the step after its ops: %s", err.text);
    be->close(be);
    be = open_one("268435456");
    x = get(be, MEMORY_WORK, 64);
    fake.lose(700);
    be->sync(be, &err);
    tap_is_str(err.where, "", "no op yet");
    be->close(be);
    be = open_one("268435456");
    x = get(be, MEMORY_WORK, 64);
    run_ops(be, x, 0, 4);
    be->sync(be, &err);
    be->mark(be, NULL);
    run_ops(be, x, 8, 4);
    fake.lose(700);
    be->sync(be, &err);
    tap_is_str(err.where, "in or after p3: fill", "since the micro-batch before");
    tap_ok(strstr(err.text, "; last op on the GPU: p11: fill"), "up to this: %s",
           err.text);
    be->close(be);
    fake.reset();
}

/* All calls after the loss; none may touch what is not there, none may hang. */
static void call_all(const struct backend *be, float *x, int32_t *ids)
{
    struct backend_event *e = be->event_new(be);
    accel_error_t err;
    float v[4] = { 1, 1, 1, 1 };
    void *none = NULL;

    be->use(be, QUEUE_GATHER);
    be->zero(be, x, 16);
    be->copy(be, x, x + 4, 16);
    be->from_host(be, x, v, sizeof(v));
    be->to_host(be, v, x, ACCEL_F32, 4);
    tap_ok(v[0] == 0 && v[3] == 0, "no values after the loss");
    be->record(be, e, QUEUE_GATHER);
    be->wait(be, QUEUE_COMPUTE, e);
    be->step_begin(be);
    be->fill(be, x, ACCEL_F32, 4, 1.0f);
    be->embed(be, x, ids, x, NULL, ACCEL_F32, 1, 1, 4, 1);
    be->step_end(be);
    tap_ok(!be->host_alloc(be, 64) && !be->reserve(be, MIB), "no new memory");
    tap_is_int(be->alloc(be, MEMORY_WORK, 64, &none, &err), ACCEL_EUNAVAIL,
               "alloc tells the first failure");
    be->event_free(be, e);
}

static void test_loss(void)
{
    struct backend *be = open_one("268435456");
    float *x = get(be, MEMORY_WORK, 64);
    int32_t *ids = get(be, MEMORY_WORK, 64);
    accel_error_t err = { 0 }, again = { 0 };

    be->fill(be, x, ACCEL_F32, 8, 2.0f);
    tap_is_int(be->sync(be, &err), ACCEL_OK, "all is well");
    fake.lose(700);
    be->fill(be, x, ACCEL_F32, 8, 3.0f);
    tap_is_int(accel_exit_code(be->sync(be, &err)), 69, "the device is lost: 69");
    tap_is_int(err.message, 446, "A0446");
    if (!tap_ok(strstr(err.text, "GPU 0 (") && strstr(err.text, " failed: ") &&
                    strstr(err.text, "cudaErrorIllegalAddress") && err.hint[0],
                "device, call, cause and cure"))
        tap_diag("%s / %s", err.text, err.hint);
    call_all(be, x, ids);
    tap_is_int(be->check(be, &again), ACCEL_EUNAVAIL, "the failure stays");
    tap_is_str(again.text, err.text, "the first one");
    be->free(be, x);
    be->close(be);
    fake.reset();
}

/* Memory that comes and goes leaves nothing on the host. A sanitizer's own malloc says
 * nothing here, and finds leaks by itself. */
static void test_books(void)
{
    struct backend *be = cuda_device();
    size_t before = 0, after;

    for (int i = 0; i < 4000; i++) {
        void *block = get(be, (enum backend_memory)(i % MEMORY_KINDS), 512),
             *locked = be->host_alloc(be, 512);

        be->free(be, block);
        be->host_free(be, locked, 512);
        /* the first ones fill the allocator's lists */
        if (i == 2000)
            before = mallinfo2().uordblks;
    }
    after = mallinfo2().uordblks;
    tap_ok(after < before + 16384, "2000 blocks leave %lld bytes on the host",
           (long long)(after - before));
    be->close(be);
}

int main(void)
{
    struct backend *first = cuda_device(); /* loads the stand-in, or not */

    first->close(first);
    cuda_stand_in("fakecuda_reset", &fake.reset);
    cuda_stand_in("fakecuda_lose", &fake.lose);
    test_open();
    test_driver();
    test_books();
    test_range();
    test_copies();
    test_events();
    test_bad_ids();
    test_first_bad_id();
    test_many_bad_ids();
    test_edges_of_ids();
    if (!fake.reset) {
        tap_skip(8, "a GPU is neither small nor lost at will");
        return tap_done();
    }
    test_alloc();
    test_full_range();
    test_graph();
    test_late();
    test_progress();
    test_op_memory();
    test_no_op();
    test_loss();
    return tap_done();
}
