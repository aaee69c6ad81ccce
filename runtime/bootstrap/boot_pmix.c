/* SPDX-License-Identifier: Apache-2.0
 *
 * A world found through PMIx (srun --mpi=pmix, Open MPI's mpirun).
 * Every PMIx call runs on a helper thread (helper.h) for which the caller waits until
 * the bootstrap deadline, because PMIx calls can hang for ever whatever PMIX_TIMEOUT
 * says. Registers no event handler: an event that reaches the default one makes Slurm
 * cancel the step.
 */
#include <errno.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/boot_impl.h"
#include "bootstrap/helper.h"

/* Leaving gets this long even if the deadline is nearer. */
#define LEAVE_MS 5000

/* Lives from boot_open to boot_free; leaked with a stuck call, which still uses it. */
struct pmix_world {
    struct boot_impl base; /* first: boot->impl points here */
    struct helper helper;  /* makes all PMIx calls */
    const char *doing;     /* the PMIx call being made, for the error text */
    pmix_proc_t me;        /* namespace and rank, from PMIx_Init */
    bool initialized;      /* between PMIx_Init and PMIx_Finalize */
    bool stuck;            /* a call did not return: PMIx must not be called again */
    int exchanges;         /* so far: numbers the keys */
};

/* One piece of work for the helper thread. On the heap, and freed by the caller
 * or the thread, whichever is last; so a call that never returns leaks this
 * (and its world). */
struct call {
    struct helper_call base; /* first: the helper passes its address */
    accel_status_t (*fn)(struct call *call);
    struct pmix_world *world;
    struct boot b; /* the thread's own copy; copied back if it ends in time */
    void *mine;    /* a copy: the thread may outlive the caller's buffer */
    size_t bytes;
    struct boot_blobs blobs;
    accel_status_t status; /* of fn */
    accel_error_t err;
};

static void call_free(struct call *call)
{
    free(call->mine);
    free(call);
}

static void call_make(struct helper_call *base)
{
    struct call *call = (struct call *)base;

    call->status = call->fn(call);
}

/* An abandoned call has nobody to take its results. */
static void call_drop(struct helper_call *base)
{
    struct call *call = (struct call *)base;

    boot_blobs_free(&call->blobs);
    call_free(call);
}

/* NULL: out of memory. */
static struct call *call_new(accel_status_t (*fn)(struct call *), struct boot *b)
{
    struct call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->base = (struct helper_call){ call_make, call_drop };
    call->fn = fn;
    call->b = *b;
    call->world = (struct pmix_world *)b->impl;
    return call;
}

/* Runs call->fn, but not beyond deadline_ns. On success the caller owns `call` again
 * and calls call_free; on failure `call` is gone. */
static accel_status_t call_run(struct call *call, int64_t deadline_ns,
                               accel_error_t *err)
{
    struct pmix_world *world = call->world;
    int rc = helper_run(&world->helper, &call->base, deadline_ns);
    accel_status_t st;

    if (rc == ETIMEDOUT) {
        world->stuck = true;
        return accel_fail_at(
            err, A0404, "bootstrap",
            "look for a rank that died or never started (srun -l prefixes output with "
            "ranks); if the cluster is just slow, raise the start-up timeout",
            "%s did not return before the bootstrap deadline",
            __atomic_load_n(&world->doing, __ATOMIC_RELAXED));
    }
    if (rc != 0) {
        call_free(call);
        return accel_fail_at(err, A0002, "bootstrap",
                             "raise the process limit (ulimit -u)",
                             "cannot start the bootstrap thread: %s", strerror(rc));
    }
    st = call->status;
    if (st != ACCEL_OK && err)
        *err = call->err;
    if (st != ACCEL_OK)
        call_free(call);
    return st;
}

/* `doing` is read by the caller while the thread sets it, so both are atomic. */
static void call_doing(struct call *call, const char *what)
{
    __atomic_store_n(&call->world->doing, what, __ATOMIC_RELAXED);
}

static accel_status_t pmix_says(struct call *call, pmix_status_t rc, const char *what)
{
    return accel_fail_at(&call->err, A0403, "bootstrap",
                         "check that the launcher's PMIx works: srun "
                         "--mpi=list must show pmix",
                         "%s: %s", what, PMIx_Error_string(rc));
}

/* ---- exchange -------------------------------------------------------------------- */

/* Publishes this rank's blob under `key`. */
static accel_status_t put_mine(struct call *call, const char *key)
{
    pmix_value_t v;
    pmix_status_t rc;

    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = call->mine;
    v.data.bo.size = call->bytes;
    call_doing(call, "PMIx_Put");
    rc = PMIx_Put(PMIX_GLOBAL, key, &v);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    return rc == PMIX_SUCCESS ? ACCEL_OK : pmix_says(call, rc, "PMIx_Put");
}

/* Returns when all ranks have put their blobs. The server drops ranks that died, so a
 * missing rank does not show here but in get_all. */
static accel_status_t fence(struct call *call)
{
    bool collect = true;
    pmix_info_t info;
    pmix_status_t rc;

    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    call_doing(call, "PMIx_Fence (waiting for the other ranks)");
    rc = PMIx_Fence(NULL, 0, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return rc == PMIX_SUCCESS ? ACCEL_OK : pmix_says(call, rc, "PMIx_Fence");
}

/* The blobs of all ranks, copied into call->blobs. values[size]: PMIx's objects,
 * released by the caller. */
static accel_status_t get_all(struct call *call, const char *key, pmix_value_t **values)
{
    size_t total = 0;
    accel_status_t st;
    char *p;

    call_doing(call, "PMIx_Get(address of a rank)");
    for (int r = 0; r < call->b.size; r++) {
        pmix_proc_t proc;
        pmix_status_t rc;

        PMIX_LOAD_PROCID(&proc, call->world->me.nspace, (uint32_t)r);
        rc = PMIx_Get(&proc, key, NULL, 0, &values[r]);
        if (rc != PMIX_SUCCESS || values[r]->type != PMIX_BYTE_OBJECT ||
            values[r]->data.bo.size > BOOT_BLOB_MAX)
            return accel_fail_at(&call->err, A0405, "bootstrap",
                                 "see the output of that rank for why it ended",
                                 "rank %d published no address: %s", r,
                                 PMIx_Error_string(rc));
        total += values[r]->data.bo.size;
    }
    ACCEL_CHECK(st, boot_blobs_alloc(&call->blobs, call->b.size, total, &call->err));
    p = call->blobs.data[0];
    for (int r = 0; r < call->b.size; r++) {
        size_t n = values[r]->data.bo.size;

        call->blobs.data[r] = p;
        call->blobs.bytes[r] = n;
        if (n > 0)
            memcpy(p, values[r]->data.bo.bytes, n);
        p += n;
    }
    return ACCEL_OK;
}

static accel_status_t exchange_call(struct call *call)
{
    pmix_value_t **values;
    accel_status_t st;
    char key[32];

    /* A fresh key for every exchange: clients may cache the values of an old one. */
    snprintf(key, sizeof(key), "accel.%d", call->world->exchanges++);
    values = calloc((size_t)call->b.size, sizeof(*values));
    if (!values)
        return accel_fail_nomem(&call->err, "bootstrap exchange",
                                (size_t)call->b.size * sizeof(*values));
    st = put_mine(call, key);
    ACCEL_TRY(st, fence(call));
    ACCEL_TRY(st, get_all(call, key, values));
    for (int r = 0; r < call->b.size; r++)
        if (values[r])
            PMIX_VALUE_RELEASE(values[r]);
    free(values);
    return st;
}

/* ---- opening --------------------------------------------------------------------- */

/* A number that the server knows of `rank`, or of the job (PMIX_RANK_WILDCARD). Servers
 * differ in the type they use. False if there is none. */
static bool get_number(const struct call *call, uint32_t rank, const char *key,
                       int64_t *number_out)
{
    pmix_proc_t proc;
    pmix_value_t *v = NULL;
    bool ok = true;

    PMIX_LOAD_PROCID(&proc, call->world->me.nspace, rank);
    if (PMIx_Get(&proc, key, NULL, 0, &v) != PMIX_SUCCESS || !v)
        return false;
    switch (v->type) {
    case PMIX_UINT16:
        *number_out = v->data.uint16;
        break;
    case PMIX_UINT32:
        *number_out = v->data.uint32;
        break;
    case PMIX_INT:
        *number_out = v->data.integer;
        break;
    case PMIX_INT32:
        *number_out = v->data.int32;
        break;
    case PMIX_PROC_RANK:
        *number_out = v->data.rank;
        break;
    default:
        ok = false;
    }
    PMIX_VALUE_RELEASE(v);
    return ok;
}

/* The same for a string, cut to len bytes. */
static bool get_string(const struct call *call, uint32_t rank, const char *key,
                       char *out, size_t len)
{
    pmix_proc_t proc;
    pmix_value_t *v = NULL;
    bool ok;

    PMIX_LOAD_PROCID(&proc, call->world->me.nspace, rank);
    if (PMIx_Get(&proc, key, NULL, 0, &v) != PMIX_SUCCESS || !v)
        return false;
    ok = v->type == PMIX_STRING && v->data.string;
    if (ok)
        snprintf(out, len, "%s", v->data.string);
    PMIX_VALUE_RELEASE(v);
    return ok;
}

/* Fills node_of. With all ranks on this node there is nothing to ask. Otherwise every
 * rank tells the others where it is, because servers give these keys only for ranks of
 * their own node; node_of[r] becomes the lowest rank that said the same as r. */
static accel_status_t find_nodes(struct call *call)
{
    struct boot *b = &call->b;
    uint32_t me = call->world->me.rank;
    int64_t id = -1, local = 0;
    char place[96];
    accel_status_t st;

    call_doing(call, "PMIx_Get(node of this rank)");
    if (get_number(call, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, &local) &&
        local == b->size)
        return ACCEL_OK;
    get_number(call, me, PMIX_NODEID, &id);
    get_string(call, me, PMIX_HOSTNAME, b->host, sizeof(b->host));
    snprintf(place, sizeof(place), "%lld %s", (long long)id, b->host);
    call->mine = strdup(place);
    call->bytes = strlen(place) + 1;
    if (!call->mine)
        return accel_fail_nomem(&call->err, "bootstrap", call->bytes);
    st = exchange_call(call);
    for (int r = 0; st == ACCEL_OK && r < b->size; r++) {
        int same = 0;

        while (same < r && (call->blobs.bytes[same] != call->blobs.bytes[r] ||
                            memcmp(call->blobs.data[same], call->blobs.data[r],
                                   call->blobs.bytes[r]) != 0))
            same++;
        b->node_of[r] = same;
    }
    boot_blobs_free(&call->blobs);
    return st;
}

/* The namespace of Slurm's PMIx is "slurm.pmix.JOB.STEP": the rest is
 * the job's name. */
static void name_job(struct call *call)
{
    static const char prefix[] = "slurm.pmix.";
    const char *name = call->world->me.nspace;
    size_t len;

    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        name += sizeof(prefix) - 1;
    len = strlen(name);
    if (len >= sizeof(call->b.job)) /* the end is what differs between jobs */
        name += len - (sizeof(call->b.job) - 1);
    snprintf(call->b.job, sizeof(call->b.job), "%s", name);
}

/* On the helper thread: everything that opening asks of PMIx. */
static accel_status_t open_call(struct call *call)
{
    struct pmix_world *world = call->world;
    struct boot *b = &call->b;
    pmix_status_t rc;
    accel_status_t st;
    int64_t size;

    call_doing(call, "PMIx_Init");
    rc = PMIx_Init(&world->me, NULL, 0);
    if (rc != PMIX_SUCCESS)
        return pmix_says(call, rc, "PMIx_Init");
    world->initialized = true;
    call_doing(call, "PMIx_Get(job size)");
    if (!get_number(call, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &size) || size < 1 ||
        size > INT32_MAX || world->me.rank >= (uint64_t)size)
        return pmix_says(call, PMIX_ERR_NOT_FOUND, "PMIx_Get(job size)");
    b->rank = (int)world->me.rank;
    b->size = (int)size;
    st = boot_alloc_ranks(b, &call->err);
    ACCEL_TRY(st, find_nodes(call));
    ACCEL_TRY(st, boot_number_nodes(b, &call->err));
    if (st != ACCEL_OK) {
        free(b->node_of);
        free(b->local_rank_of);
        return st;
    }
    get_string(call, world->me.rank, PMIX_HOSTNAME, b->host, sizeof(b->host));
    name_job(call);
    return ACCEL_OK;
}

/* The error for any use of PMIx after a call that did not return. */
static accel_status_t stuck(accel_error_t *err)
{
    return accel_fail_at(err, A0404, "bootstrap",
                         "see the first message of this rank for the reason",
                         "an earlier PMIx call did not return");
}

/* The blob is copied first: the thread may outlive the caller's buffer. */
static accel_status_t world_exchange(struct boot *b, const void *mine, size_t bytes,
                                     struct boot_blobs *all_out, accel_error_t *err)
{
    struct pmix_world *world = (struct pmix_world *)b->impl;
    struct call *call;
    accel_status_t st;

    if (world->stuck)
        return stuck(err);
    if (!world->initialized)
        return accel_fail(err, A0406, "exchange before closing it",
                          "the bootstrap is already closed");
    call = call_new(exchange_call, b);
    if (!call)
        return accel_fail_nomem(err, "bootstrap exchange", sizeof(*call));
    call->mine = malloc(bytes + 1);
    if (!call->mine) {
        call_free(call);
        return accel_fail_nomem(err, "bootstrap exchange", bytes);
    }
    if (bytes > 0)
        memcpy(call->mine, mine, bytes);
    call->bytes = bytes;
    ACCEL_CHECK(st, call_run(call, b->deadline_ns, err));
    *all_out = call->blobs;
    call_free(call);
    return ACCEL_OK;
}

/* ---- leaving --------------------------------------------------------------------- */

static accel_status_t leave_call(struct call *call)
{
    pmix_status_t rc;

    call_doing(call, "PMIx_Finalize");
    rc = PMIx_Finalize(NULL, 0);
    return rc == PMIX_SUCCESS ? ACCEL_OK : pmix_says(call, rc, "PMIx_Finalize");
}

/* initialized is cleared before the call: after a failed PMIx_Finalize there is nothing
 * that could be done again. Harmless if left already. */
static accel_status_t world_leave(struct boot *b, accel_error_t *err)
{
    struct pmix_world *world = (struct pmix_world *)b->impl;
    int64_t grace = clock_ns() + (int64_t)LEAVE_MS * 1000000;
    struct call *call;
    accel_status_t st;

    if (world->stuck)
        return stuck(err);
    if (!world->initialized)
        return ACCEL_OK;
    call = call_new(leave_call, b);
    if (!call)
        return accel_fail_nomem(err, "bootstrap", sizeof(*call));
    world->initialized = false;
    st = call_run(call, grace > b->deadline_ns ? grace : b->deadline_ns, err);
    if (st == ACCEL_OK)
        call_free(call);
    helper_stop(&world->helper);
    return st;
}

static void world_free(struct boot *b)
{
    struct pmix_world *world = (struct pmix_world *)b->impl;

    world_leave(b, NULL);
    helper_stop(&world->helper); /* PMIx_Init failed: there was nothing to leave */
    if (!world->stuck)           /* the abandoned call still uses it */
        free(world);
}

accel_status_t boot_open_pmix(struct boot *b, accel_error_t *err)
{
    struct pmix_world *world = calloc(1, sizeof(*world));
    struct call *call;
    accel_status_t st;

    if (!world)
        return accel_fail_nomem(err, "bootstrap", sizeof(*world));
    world->base = (struct boot_impl){ world_exchange, world_leave, world_free };
    world->doing = "PMIx";
    b->impl = &world->base;
    b->method = "pmix";
    call = call_new(open_call, b);
    if (!call)
        return accel_fail_nomem(err, "bootstrap", sizeof(*call));
    ACCEL_CHECK(st, call_run(call, b->deadline_ns, err));
    *b = call->b;
    call_free(call);
    return ACCEL_OK;
}
