/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a parameter from all ranks to one. In: each rank's part. Out: a slice, in
 * the order of the elements. With copies of shards (HYBRID_SHARD) that is not the order
 * of the ranks, so each says where its share begins.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "weights/weights.h"

/* Elements [begin, end) of a parameter; none when begin >= end. */
struct share {
    int64_t begin, end;
};

static struct share share_of(const struct weight_part *p, int64_t first, int64_t count)
{
    struct share s = { p->begin, p->begin + p->count };

    s.begin = s.begin > first ? s.begin : first;
    s.end = s.end < first + count ? s.end : first + count;
    return s;
}

/* Puts what `ranks` ranks sent, one after the other, where it belongs in dst, which
 * begins with element `first`. */
static void put_in_order(float *dst, const char *sent, const size_t *bytes,
                         const struct share *share, int ranks, int64_t first)
{
    for (int r = 0; r < ranks; r++) {
        if (bytes[r] > 0)
            memcpy(dst + (share[r].begin - first), sent, bytes[r]);
        sent += bytes[r];
    }
}

bool weights_are_staged(const accel_t *run)
{
    return run_home(run)->device || precision_of(&run->config).masters != ACCEL_F32;
}

static struct scaled scaled_part(const struct weight_part *p)
{
    return (struct scaled){ p->data, p->exponent, p->type };
}

void weight_part_write(accel_t *run, const struct weight_part *p, int64_t first,
                       int64_t n, const float *src)
{
    const struct backend *be = run_home(run);
    void *to = weight_part_at(p, first);

    if (n > 0 && p->exponent)
        shard_put_scaled(be, scaled_from(scaled_part(p), first), src, n);
    else if (n > 0)
        shard_put_masters(be, to, p->type, src, n);
}

/* n of this rank's elements from number `first` of its own on, as float32 in host
 * memory: in place, or in `stage`. Complete when the call returns. */
static const float *part_values(const struct backend *be, const struct weight_part *p,
                                int64_t first, int64_t n, float *stage)
{
    const void *values = weight_part_at(p, first);

    if (p->exponent)
        shard_get_scaled(be, scaled_from(scaled_part(p), first), stage, n);
    else if (be->device)
        be->to_host(be, stage, values, p->type, n);
    else if (p->type != ACCEL_F32)
        be->widen(be, stage, values, p->type, n);
    else
        return values;
    return stage;
}

accel_status_t weight_gather(accel_t *run, const struct weight_part *p, int root,
                             int64_t first, int64_t count, float *stage, float *dst,
                             accel_error_t *err)
{
    const struct backend *be = run_home(run);
    const struct share mine = share_of(p, first, count);
    size_t bytes = 0, sizes[run->boot.size], said[run->boot.size];
    const float *values = NULL;
    void *all = NULL, *shares = NULL;
    accel_status_t st;

    if (mine.begin < mine.end) {
        bytes = (size_t)(mine.end - mine.begin) * sizeof(*values);
        values =
            part_values(be, p, mine.begin - p->begin, mine.end - mine.begin, stage);
    }
    st = comm_gather(run->comm, &mine, sizeof(mine), root, &shares, said, err);
    ACCEL_TRY(st, comm_gather(run->comm, values, bytes, root, &all, sizes, err));
    if (!st && run->boot.rank == root)
        put_in_order(dst, all, sizes, shares, run->boot.size, first);
    free(shares);
    free(all);
    return st;
}
