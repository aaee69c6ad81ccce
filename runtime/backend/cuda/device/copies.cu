/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies within the device and to and from the host. Host data that the caller may
 * change at once goes through page-locked buffers: the copy is then the device's
 * business, and the calling thread waits only when all buffers are in flight.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda_sizes.h"

#define SLOT_BYTES CUDA_STAGING_SLOT
#define SLOTS      CUDA_STAGING_SLOTS
/* From this size on, waiting for a direct copy from page-locked memory is cheaper than
 * copying twice. */
#define DIRECT_FROM (4 * SLOT_BYTES)

/* One staging buffer. The calling thread may refill it once `done` has passed. */
struct slot {
    char *p;
    cudaEvent_t done; /* recorded after its last copy */
    uint64_t stamp;   /* of that copy; the lowest is the oldest */
};

struct cuda_staging {
    struct slot slot[SLOTS];
    int made;
    uint64_t stamp;
};

bool cuda_staging_open(struct cuda_state *s)
{
    s->staging = (struct cuda_staging *)calloc(1, sizeof(*s->staging));
    return s->staging || cuda_fails(s, "calloc", "out of memory of the host");
}

void cuda_staging_close(struct cuda_state *s)
{
    for (int i = 0; s->staging && i < s->staging->made; i++) {
        (void)cudaEventDestroy(s->staging->slot[i].done);
        (void)cudaFreeHost(s->staging->slot[i].p);
    }
    free(s->staging);
    s->staging = NULL;
}

/* Portable: every device of the process may use it. */
static struct slot *make_slot(struct cuda_state *s)
{
    struct slot *slot = &s->staging->slot[s->staging->made];

    if (!CHECK(s, cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming)))
        return NULL;
    if (!CHECK(s, cudaHostAlloc(&slot->p, SLOT_BYTES, cudaHostAllocPortable))) {
        (void)cudaEventDestroy(slot->done);
        return NULL;
    }
    s->staging->made++;
    return slot;
}

/* The least recently used buffer if its copy is complete, else a new one, else wait for
 * that one. NULL after a failure. */
static struct slot *take_slot(struct cuda_state *s)
{
    struct cuda_staging *g = s->staging;
    struct slot *slot = &g->slot[0];
    cudaError_t code;

    if (s->failed)
        return NULL;
    /* made at first use: a process that copies nothing locks no memory */
    if (g->made == 0)
        return make_slot(s);
    for (int i = 1; i < g->made; i++)
        /* stamps grow, so the lowest was used longest ago */
        if (g->slot[i].stamp < slot->stamp)
            slot = &g->slot[i];
    code = cudaEventQuery(slot->done);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        /* a new buffer costs once; waiting would cost each time */
        if (g->made < SLOTS)
            return make_slot(s);
        return cuda_await_event(s, slot->done) ? slot : NULL;
    }
    return cuda_ok(s, code, "cudaEventQuery") ? slot : NULL;
}

/* The runtime finds out which side is whose (cudaMemcpyDefault). */
void cuda_copy(const struct backend *be, void *dst, const void *src, size_t bytes)
{
    struct cuda_state *s = cuda_state_of(be);

    if (bytes)
        CHECK(s, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->now));
}

void cuda_zero(const struct backend *be, void *dst, size_t bytes)
{
    struct cuda_state *s = cuda_state_of(be);

    if (bytes)
        CHECK(s, cudaMemsetAsync(dst, 0, bytes, s->now));
}

void cuda_from_host(const struct backend *be, void *dst, const void *host, size_t bytes)
{
    struct cuda_state *s = cuda_state_of(be);

    if (s->end_recording)
        /* the bytes are those of now, and a recorded step runs later */
        s->end_recording(s);
    /* the caller may change host memory when we return, so a direct copy must be waited
     * for */
    if (bytes >= DIRECT_FROM && cuda_is_locked(s, host, bytes)) {
        if (CHECK(s, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, s->now)))
            cuda_finish(s);
        return;
    }
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        const size_t n = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        struct slot *slot = take_slot(s);

        if (!slot)
            return;
        /* the host copies piece k + 1 while the device copies piece k */
        memcpy(slot->p, (const char *)host + at, n);
        slot->stamp = ++s->staging->stamp;
        if (!CHECK(s, cudaMemcpyAsync((char *)dst + at, slot->p, n,
                                      cudaMemcpyHostToDevice, s->now)) ||
            !CHECK(s, cudaEventRecord(slot->done, s->now)))
            return;
    }
}

const void *cuda_fetch_late(struct cuda_state *s, cudaStream_t queue, const void *src,
                            size_t bytes)
{
    struct slot *slot = take_slot(s);

    if (!slot ||
        !CHECK(s, cudaMemcpyAsync(slot->p, src, bytes, cudaMemcpyDeviceToHost, queue)))
        return NULL;
    return slot->p;
}

/* Copies at most SLOT_BYTES into one of our buffers and waits. NULL after a failure. */
static const void *fetch_piece(struct cuda_state *s, const void *src, size_t bytes)
{
    const void *piece = cuda_fetch_late(s, s->now, src, bytes);

    /* reading back is waiting: nothing to overlap */
    return piece && cuda_finish(s) ? piece : NULL;
}

bool cuda_fetch(struct cuda_state *s, void *host, const void *src, size_t bytes)
{
    cuda_settle(&s->be);
    if (s->end_recording)
        s->end_recording(s);
    if (cuda_is_locked(s, host, bytes))
        return !bytes || (CHECK(s, cudaMemcpyAsync(host, src, bytes,
                                                   cudaMemcpyDeviceToHost, s->now)) &&
                          cuda_finish(s));
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        const size_t n = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        const void *piece = fetch_piece(s, (const char *)src + at, n);

        if (!piece)
            return false;
        memcpy((char *)host + at, piece, n);
    }
    return !s->failed;
}

/* After a failure there are no values; zeros at least do not leak other memory. */
void cuda_to_host_bytes(const struct backend *be, void *host, const void *src,
                        size_t bytes)
{
    if (!cuda_fetch(cuda_state_of(be), host, src, bytes))
        memset(host, 0, bytes);
}

/* Values of any dtype as float32, on the host. */
static void as_float(float *out, const void *src, accel_dtype_t type, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        switch (type) {
        case ACCEL_F32:
            out[i] = ((const float *)src)[i];
            break;
        case ACCEL_BF16:
            out[i] = bf16_to_f32(((const bf16_t *)src)[i]);
            break;
        case ACCEL_F16:
            out[i] = f16_to_f32(((const f16_t *)src)[i]);
            break;
        case ACCEL_I32:
            out[i] = (float)((const int32_t *)src)[i];
            break;
        case ACCEL_I64:
            out[i] = (float)((const int64_t *)src)[i];
            break;
        case ACCEL_U16:
            out[i] = ((const uint16_t *)src)[i];
            break;
        case ACCEL_U8:
            out[i] = ((const uint8_t *)src)[i];
            break;
        case ACCEL_I8:
            out[i] = ((const int8_t *)src)[i];
            break;
        case ACCEL_F64:
            out[i] = (float)((const double *)src)[i];
            break;
        default: /* float8 never forms arrays */
            break;
        }
}

/* The host converts: one copy of the array as it is, and no kernel per dtype. */
void cuda_to_host(const struct backend *be, float *host, const void *src,
                  accel_dtype_t type, int64_t n)
{
    struct cuda_state *s = cuda_state_of(be);
    const size_t size = accel_dtype_bytes(type);
    /* a piece that fits a buffer, whatever the dtype */
    const int64_t step = (int64_t)(SLOT_BYTES / size);

    cuda_settle(be);
    if (s->end_recording)
        s->end_recording(s);
    for (int64_t at = 0; at < n; at += step) {
        const int64_t some = n - at < step ? n - at : step;
        const void *piece =
            fetch_piece(s, (const char *)src + (size_t)at * size, (size_t)some * size);

        if (piece)
            as_float(host + at, piece, type, some);
        else
            memset(host + at, 0, (size_t)some * sizeof(*host));
    }
}
