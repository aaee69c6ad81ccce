/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives for libaccelckpt, which knows nothing of comm/. In: a communicator. Out:
 * the same operations in the form that accel_ckpt.h asks for.
 */
#include "handle/run.h"

static accel_status_t coll_gather(void *user, const void *mine, size_t bytes, int root,
                                  void **all_out, size_t *sizes_out, accel_error_t *err)
{
    return comm_gather(user, mine, bytes, root, all_out, sizes_out, err);
}

static accel_status_t coll_broadcast(void *user, void *buf, size_t bytes, int root,
                                     accel_error_t *err)
{
    return comm_broadcast(user, buf, bytes, root, err);
}

static accel_status_t coll_max(void *user, int64_t *value, accel_error_t *err)
{
    return comm_all_reduce(user, value, 1, ACCEL_I64, COMM_MAX, err);
}

accel_ckpt_coll_t state_collectives(struct comm *c)
{
    return (accel_ckpt_coll_t){
        .user = c,
        .rank = comm_rank(c),
        .size = comm_size(c),
        .gather = coll_gather,
        .broadcast = coll_broadcast,
        .max_i64 = coll_max,
    };
}
