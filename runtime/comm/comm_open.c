/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a communicator. In: the ranks, and which backend is asked for. Out: the same
 * backend on all ranks, or the same failure.
 */
#include <string.h>

#include "comm/comm_impl.h"

#define DEFAULT_TIMEOUT_MS 600000

/* Tries shared memory first. Whether it works is known only after the ranks have tried
 * to map each other's windows, and all learn the same answer; so all of them fall back
 * to UCX, or none. */
static accel_status_t open_shm_or_ucx(struct comm *c, struct boot *b, bool must_share,
                                      size_t window_bytes, accel_error_t *err)
{
    char why[128] = "";
    bool fits = false;
    accel_status_t st = comm_shm_open(c, b, window_bytes, &fits, why, err);

    if (st != ACCEL_OK || fits)
        return st;
#ifdef HAVE_UCX
    if (!must_share)
        return comm_ucx_open(c, b, err);
#endif
    return accel_fail(err, A0508,
                      must_share ? "use the backend ucx"
                                 : "fix the cause, or build accel with UCX: install "
                                   "libucx-dev (Debian) or ucx-devel (RHEL) first",
                      "the ranks cannot share memory: %s", why);
}

/* The backend by name, or else self for one rank, shm (falling back to ucx) for one
 * node, ucx for several. The empty name stands for "shm if it works". Depends only on
 * what all ranks have in common, so all choose the same one. */
static accel_status_t open_backend(struct comm *c, struct boot *b, accel_error_t *err)
{
    const char *name = c->options->backend;

    if (name && strcmp(name, "nccl") == 0)
        return comm_nccl_open(c, b, err);
    if (!name)
        name = b->size == 1 ? "self" : b->nodes == 1 ? "" : "ucx";
    if (strcmp(name, "self") == 0) {
        if (b->size != 1)
            return accel_fail(err, A0507, "use shm or ucx",
                              "comm backend self is for one rank, not %d", b->size);
        return comm_self_open(c, err);
    }
    if (strcmp(name, "ucx") == 0)
        return comm_ucx_open(c, b, err);
    if (name[0] && strcmp(name, "shm") != 0)
        return accel_fail(err, A0507, "use self, shm, ucx or nccl",
                          "unknown comm backend '%s'", name);
    if (b->nodes != 1)
        return accel_fail(err, A0507, "use ucx",
                          "comm backend shm is for one node, not %d", b->nodes);
    return open_shm_or_ucx(c, b, name[0] != '\0', c->options->window_bytes, err);
}

/* Copies what comm_split asks for again: the caller's options need not live
 * longer than comm_open. */
static accel_status_t keep_options(struct comm *c, const struct comm_options *o,
                                   accel_error_t *err)
{
    if (o->backend)
        c->asked = strdup(o->backend);
    if (o->net_devices)
        c->net_devices = strdup(o->net_devices);
    if ((o->backend && !c->asked) || (o->net_devices && !c->net_devices))
        return accel_fail_nomem(err, "communicator", sizeof(*o));
    return ACCEL_OK;
}

accel_status_t comm_open(struct comm **comm_out, struct boot *b,
                         const struct comm_options *o, accel_error_t *err)
{
    int timeout_ms = o && o->timeout_ms > 0 ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
    const struct comm_options none = { 0 };
    struct comm *c = NULL;
    accel_status_t st;

    ACCEL_CHECK(st, comm_new(&c, b, timeout_ms, err));
    c->options = o ? o : &none;
    c->nodes_first = c->options->nodes_first;
    c->root = c->options->root ? c->options->root->root : NULL;
    st = keep_options(c, c->options, err);
    ACCEL_TRY(st, open_backend(c, b, err));
    if (st != ACCEL_OK) {
        comm_close(c);
        return st;
    }
    c->options = NULL;
    if (!c->root)
        c->root = c;
    *comm_out = c;
    return ACCEL_OK;
}
