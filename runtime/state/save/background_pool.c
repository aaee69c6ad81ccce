/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory for the copies of saves in the background. In: accel.checkpoint.async,
 * what a save writes, and how much memory the nodes have left. Out: a pool on every
 * rank, or on none: then training waits for each save. By default half of the memory
 * left stays free for later needs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/run_boxes.h"
#include "state/save/background.h"
#include "backend/device.h"
#include "handle/run.h"

/* Boxes of at least this many bytes begin at a page, and are written without a copy;
 * smaller ones lie side by side, since a page for each would cost too much. */
#define ALIGNED_BYTES ((size_t)256 << 10)
#define PAGE          4096
#define SMALL_ALIGN   64
/* what a thread touches at a time */
#define PIECE ((size_t)4 << 20)

size_t pool_place(size_t at, size_t bytes)
{
    const size_t align = bytes >= ALIGNED_BYTES ? PAGE : SMALL_ALIGN;

    return (at + align - 1) / align * align;
}

size_t pool_bytes(const struct run_boxes *b)
{
    size_t at = 0;

    for (size_t i = 0; i < b->count; i++)
        at = pool_place(at, run_box_bytes(&b->all[i])) + run_box_bytes(&b->all[i]);
    return at;
}

/* ---- a pool of this rank --------------------------------------------------------- */

void pool_free(accel_t *run)
{
    struct background *b = &run->background;
    const struct backend *be = run->backend;

    if (b->pool && be->device)
        be->host_free(be, b->pool, b->pool_bytes);
    else if (b->pool)
        be->free(be, b->pool);
    b->pool = NULL;
    b->pool_bytes = 0;
}

/* The kernel finds the pages now, not in the first save. By the threads that copy, so
 * that each has its own near. */
static void pool_touch(char *pool, size_t bytes)
{
    const int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        const size_t at = (size_t)i * PIECE;

        memset(pool + at, 0, bytes - at < PIECE ? bytes - at : PIECE);
    }
}

accel_status_t pool_make(accel_t *run, size_t bytes, accel_error_t *err)
{
    struct background *b = &run->background;
    const struct backend *be = run->backend;
    accel_status_t st = ACCEL_OK;

    if (b->pool && bytes <= b->pool_bytes)
        return ACCEL_OK;
    pool_free(run);
    bytes += bytes == 0;
    if (be->device)
        b->pool = be->host_alloc(be, bytes);
    else
        st = be->alloc(be, MEMORY_WORK, bytes, (void **)&b->pool, err);
    if (st == ACCEL_OK && !b->pool)
        st = accel_fail_nomem(err, "the copy for checkpoints in the background", bytes);
    if (st != ACCEL_OK) {
        b->pool = NULL;
        return st;
    }
    b->pool_bytes = bytes;
    pool_touch(b->pool, bytes);
    return ACCEL_OK;
}

/* ---- is there memory? ------------------------------------------------------------ */

/* Why a rank has no pool. */
struct shortage {
    /* bytes; 0: none lacks anything */
    int64_t want;
    /* what there is, and what limits it; of "": the system refused a pool */
    int64_t left;
    char of[64], host[64];
};

/* At most half of what is left: what comes later (batches, evaluation, what the program
 * keeps) is in no plan, a copy is a convenience, and Linux kills whoever asks last. */
static bool pool_fits(int64_t want, const struct memory_left *left)
{
    return want <= left->bytes / 2;
}

/* The ranks of this node want `node_bytes` together, this one `bytes` of it. */
static void pool_judge(const accel_t *run, int64_t node_bytes, int64_t bytes,
                       struct shortage *s_out)
{
    const struct memory_left node = observe_node_left(""),
                             own = observe_process_left("");
    const bool here = pool_fits(node_bytes, &node), me = pool_fits(bytes, &own);
    const struct memory_left *left = here ? &own : &node;

    *s_out = (struct shortage){ 0 };
    if (here && me)
        return;
    s_out->want = here ? bytes : node_bytes;
    s_out->left = left->bytes;
    snprintf(s_out->of, sizeof(s_out->of), "%s", left->of ? left->of : "?");
    snprintf(s_out->host, sizeof(s_out->host), "%s", run->boot.host);
}

/* Collective. All ranks get the shortage of the lowest one that has any. */
static accel_status_t pool_agree(accel_t *run, struct shortage *s, accel_error_t *err)
{
    int64_t first = s->want > 0 ? run->boot.rank : run->boot.size;
    accel_status_t st = comm_all_reduce(run->comm, &first, 1, ACCEL_I64, COMM_MIN, err);

    if (st == ACCEL_OK && first < run->boot.size)
        st = comm_broadcast(run->comm, s, sizeof(*s), (int)first, err);
    return st;
}

/* Collective. Before any rank takes memory: a rank that came late would count the pools
 * of others as used, and want its node's sum once more. */
static accel_status_t pool_ask(accel_t *run, size_t bytes, struct shortage *s_out,
                               accel_error_t *err)
{
    const struct boot *b = &run->boot;
    int64_t *wants = calloc((size_t)b->nodes, sizeof(*wants));
    accel_status_t st = ACCEL_OK;

    if (!wants)
        st = accel_fail_nomem(err, "the sums of the nodes", (size_t)b->nodes * 8);
    st = run_agree(run, st, err);
    if (st == ACCEL_OK) {
        wants[b->node] = (int64_t)bytes;
        st = comm_all_reduce(run->comm, wants, (size_t)b->nodes, ACCEL_I64, COMM_SUM,
                             err);
    }
    if (st == ACCEL_OK) {
        pool_judge(run, wants[b->node], (int64_t)bytes, s_out);
        st = pool_agree(run, s_out, err);
    }
    free(wants);
    return st;
}

/* No fault, and the same for every start of the job: information for rank 0. */
static void pool_say(accel_t *run, const struct shortage *s)
{
    char want[32], left[32], why[256];

    format_bytes((double)s->want, want, sizeof(want));
    format_bytes((double)s->left, left, sizeof(left));
    if (s->of[0])
        snprintf(why, sizeof(why), "more than half of the %s that %s leaves", left,
                 s->of);
    else
        snprintf(why, sizeof(why), "which cannot be had");
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "training waits for each checkpoint: copies to write in the background "
               "would take %s on %s, %s (ask for more memory, or set "
               "accel.checkpoint.async to true to take it nonetheless, or to false to "
               "omit this line)",
               want, s->host, why);
}

/* Collective. auto: a pool on all ranks, or a line about why there is none. */
static accel_status_t pool_try(accel_t *run, size_t bytes, accel_error_t *err)
{
    struct shortage s = { 0 };
    accel_status_t made, st = pool_ask(run, bytes, &s, err);

    if (st != ACCEL_OK)
        return st;
    if (s.want == 0) {
        made = pool_make(run, bytes, err);
        ACCEL_CHECK(st, run_agree(run, made == ACCEL_ENOMEM ? ACCEL_OK : made, err));
        if (made == ACCEL_ENOMEM) {
            s.want = (int64_t)bytes + (bytes == 0);
            snprintf(s.host, sizeof(s.host), "%s", run->boot.host);
            *err = (accel_error_t){ 0 };
        }
        st = pool_agree(run, &s, err);
    }
    run->background.on = st == ACCEL_OK && s.want == 0;
    if (!run->background.on)
        pool_free(run);
    if (st == ACCEL_OK && !run->background.on)
        pool_say(run, &s);
    return st;
}

/* ---- */

/* Collective. Rank 0 knows how long saves took, in this life and in those before. */
static accel_status_t pool_timed(accel_t *run, accel_error_t *err)
{
    struct pace *p = &run->preemption.pace;
    const accel_status_t st = comm_broadcast(run->comm, p, sizeof(*p), 0, err);

    run->background.timed = (run->staging.on ? p->local : p->at_once) > 0;
    return st;
}

accel_status_t background_open(accel_t *run, accel_error_t *err)
{
    const enum async_choice async = run->config.ckpt_async;
    struct run_boxes boxes = { 0 };
    accel_status_t st;
    size_t bytes;

    if (!run->config.ckpt_save || async == ASYNC_FALSE)
        return ACCEL_OK;
    if (config_state_dict(&run->config) == DICT_FULL) {
        if (run->boot.rank == 0 && async == ASYNC_TRUE)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "accel.checkpoint.async has no effect on FULL_STATE_DICT, whose "
                       "one file is sent from rank to rank: training waits for each "
                       "save (SHARDED_STATE_DICT would not)");
        return ACCEL_OK;
    }
    st = run_agree(run, run_boxes_list(run, &boxes, err), err);
    bytes = st == ACCEL_OK ? pool_bytes(&boxes) : 0;
    run_boxes_free(&boxes);
    ACCEL_TRY(st, pool_timed(run, err));
    if (st != ACCEL_OK || async == ASYNC_AUTO)
        return st ? st : pool_try(run, bytes, err);
    st = run_agree(run, pool_make(run, bytes, err), err);
    run->background.on = st == ACCEL_OK;
    return st;
}

void background_drop(accel_t *run, int64_t step)
{
    run->background.on = false;
    pool_free(run);
    if (run->boot.rank == 0)
        accel_logf(
            &run->log, ACCEL_LOG_WARN,
            "there is no memory for the copy of step %lld: from here on training "
            "waits for each checkpoint",
            (long long)step);
}
