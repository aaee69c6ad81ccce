/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak of activations, measured before any memory is allocated. The same forward
 * and backward run on the meta backend and a counting arena, which replace the graph's
 * own during the measurement.
 */
#include "backend/device.h"
#include "nn/nn.h"
#include "tensor/tape.h"

#define MEASURE_MAX_IN 8
/* The room for logits shrinks by at least so much at a time: about a chunk of them. */
#define ROOM_STEP ((size_t)256 << 20)

/* A residency that gathers nothing. Any address that is not NULL will do, because no
 * kernel of the meta backend reads it. */
static accel_status_t fake_want(void *user, int unit, void **data_out,
                                accel_error_t *err)
{
    (void)unit;
    (void)err;
    *data_out = user;
    return ACCEL_OK;
}

static void fake_done(void *user, int unit)
{
    (void)user;
    (void)unit;
}

static accel_status_t fake_grad(void *user, int unit, float **grad_out,
                                accel_error_t *err)
{
    (void)unit;
    (void)err;
    *grad_out = user;
    return ACCEL_OK;
}

/* The tensor of one field for a whole batch, uninitialised. NULL: sticky error. */
static accel_tensor_t *batch_tensor(struct graph *g, int64_t batch,
                                    const accel_field_t *f)
{
    bool real = accel_dtype_is_float(f->dtype);
    int64_t dims[TENSOR_MAX_DIMS] = { batch };

    for (int i = 0; i < f->ndim; i++)
        dims[i + 1] = f->dims[i];
    return graph_tensor(g, real ? g->compute : f->dtype, f->ndim + 1, dims);
}

/* The forward, and the backward where the tape is recording. Errors stay in
 * the graph. */
static accel_status_t measure_run(accel_module_t *model, int batch,
                                  const accel_field_t *field, int n, accel_error_t *err)
{
    struct graph *g = model->g;
    accel_tensor_t *in[MEASURE_MAX_IN], *loss;

    for (int i = 0; i < n; i++)
        in[i] = batch_tensor(g, batch, &field[i]);
    loss = accel_call(model, in, n);
    /* graph_backward also tells what is wrong with the forward or its loss. */
    if (g->recording || g->error.code)
        return graph_backward(g, loss, 1.0f, err);
    return ACCEL_OK;
}

accel_status_t nn_measure(accel_module_t *model, int batch, const accel_field_t *field,
                          int n, bool backward, size_t *peak_bytes_out,
                          accel_error_t *err)
{
    /* `saved` brings the graph back as it was, sticky error included. */
    struct graph *g = model->g, saved = *g, meta;
    struct backend *be;
    accel_status_t st;

    ACCEL_CHECK(st, backend_meta_open(&be, g->backend, err));
    st = graph_open(&meta, be, g->compute, true, err);
    if (st) {
        backend_close(be);
        return st;
    }
    /* Only what the forward uses is replaced. Values live in meta's arena, and go with
     * it; tensors are those of the run's tape, since a program that keeps one is to
     * find it without values, not freed. */
    g->backend = be;
    g->arena = meta.arena;
    g->recording = backward;
    g->error = meta.error;
    g->residency.user = &meta;
    g->residency.want = fake_want;
    g->residency.done = fake_done;
    g->residency.grad = fake_grad;
    st = measure_run(model, batch, field, n, err);
    if (!st)
        *peak_bytes_out = arena_peak_bytes(g->arena);
    graph_reset(g);
    *g = saved;
    graph_close(&meta);
    backend_close(be);
    return st;
}

/* The peak grows by the room at most, so the first try is as a rule the last. Several
 * heads, or larger blocks that no longer fit the arena's gaps, take more: then less is
 * tried. */
accel_status_t nn_keep_logits(accel_module_t *model, int batch,
                              const accel_field_t *field, int n, size_t most_bytes,
                              size_t *peak_bytes, accel_error_t *err)
{
    struct graph *g = model->g;
    size_t room = most_bytes > *peak_bytes ? most_bytes - *peak_bytes : 0, peak;
    accel_status_t st = ACCEL_OK;

    while (room > 0) {
        g->logits_room = room;
        st = nn_measure(model, batch, field, n, true, &peak, err);
        if (st || peak <= most_bytes)
            break;
        room -= peak - most_bytes < room ? peak - most_bytes : room;
        room -= ROOM_STEP < room ? ROOM_STEP : room;
    }
    g->logits_room = st ? 0 : room;
    if (!st && room > 0)
        *peak_bytes = peak;
    return st;
}
