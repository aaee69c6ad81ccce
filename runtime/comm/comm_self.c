/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of one rank: at most copies. Uses the same kernels as the backends with
 * peers, so the bits are the same.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/comm_impl.h"
#include "comm/reduce.h"

/* all_gather and broadcast: in place, and nobody to exchange with. */
static accel_status_t self_buf(struct comm *c, void *buf, accel_error_t *err)
{
    (void)c;
    (void)buf;
    (void)err;
    return ACCEL_OK;
}

static accel_status_t self_barrier(struct comm *c, accel_error_t *err)
{
    return self_buf(c, NULL, err);
}

static accel_status_t self_reduce_scatter(struct comm *c, const void *in, float *out,
                                          float scale, bool accumulate,
                                          accel_error_t *err)
{
    (void)err;
    reduce_scaled_sum(out, &in, 1, c->args.elems, c->args.dtype, scale, accumulate);
    return ACCEL_OK;
}

/* Not a no-op: the kernel makes bfloat16 NaNs quiet, as it does with more ranks. */
static accel_status_t self_all_reduce(struct comm *c, void *buf, accel_error_t *err)
{
    const void *src = buf;

    (void)err;
    reduce_op(buf, &src, 1, c->args.elems, c->args.dtype, c->args.op);
    return ACCEL_OK;
}

/* One byte more than needed, because malloc(0) may return NULL. */
static accel_status_t self_gather(struct comm *c, const void *mine, void **all_out,
                                  size_t *sizes_out, accel_error_t *err)
{
    size_t bytes = c->args.elems;
    void *copy = malloc(bytes + 1);

    if (!copy)
        return accel_fail_nomem(err, "gather", bytes);
    if (bytes > 0)
        memcpy(copy, mine, bytes);
    *all_out = copy;
    sizes_out[0] = bytes;
    return ACCEL_OK;
}

static const struct comm_ops self_ops = {
    .name = "self",
    .alloc = comm_private_alloc,
    .all_gather = self_buf,
    .reduce_scatter = self_reduce_scatter,
    .all_reduce = self_all_reduce,
    .broadcast = self_buf,
    .barrier = self_barrier,
    .gather = self_gather,
};

accel_status_t comm_self_open(struct comm *c, accel_error_t *err)
{
    (void)err;
    c->ops = &self_ops;
    return ACCEL_OK;
}
