/* SPDX-License-Identifier: Apache-2.0
 *
 * A load of boxes with the run's collectives: data that several ranks hold is read from
 * storage once for all of them.
 */
#include "state/run_boxes.h"
#include "handle/run.h"

/* HYBRID: the ranks with copies of one part read it together. The run's communicator of
 * them may be the device's, and a load is in host memory. Neither read is left out
 * after an error in the other: some ranks may have none. */
static accel_status_t read_copies(accel_t *run, accel_ckpt_t *c,
                                  const struct run_boxes *b, accel_error_t *err)
{
    const accel_ckpt_coll_t all = state_collectives(run->comm);
    accel_ckpt_coll_t some;
    struct comm *copies = NULL;
    accel_error_t e = { 0 };
    accel_status_t st, more;

    ACCEL_CHECK(st, comm_split(run->comm, mesh_color(&run->mesh, AXIS_REPLICATE),
                               run->boot.rank, &copies, err));
    some = state_collectives(copies);
    st = accel_ckpt_read_together(c, b->all, b->shard_count, &some, err);
    more = accel_ckpt_read_together(c, b->all + b->shard_count,
                                    b->count - b->shard_count, &all, &e);
    comm_close(copies);
    if (st == ACCEL_OK && more != ACCEL_OK)
        *err = e;
    return st != ACCEL_OK ? st : more;
}

accel_status_t run_boxes_read(accel_t *run, accel_ckpt_t *c, const struct run_boxes *b,
                              accel_error_t *err)
{
    const accel_ckpt_coll_t all = state_collectives(run->comm);

    return run->mesh.copies ? read_copies(run, c, b, err)
                            : accel_ckpt_read_together(c, b->all, b->count, &all, err);
}
