/* SPDX-License-Identifier: Apache-2.0
 *
 * One of two ranks fails in a call that all make: at an allocation, at a call of the
 * system, with a status of its own before an agreement, at every place of the call in
 * turn. Both end alike, with its text, after the same collectives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/save/staging.h"
#include "accel_ckpt.h"
#include "accel_state.h"
#include "common/env_names.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/unit/agreement_sites.h"
#include "tests/unit/lockstep.h"
#include "tests/world/run_net.h"

static char root[64] = "/tmp/accel-agree-XXXXXX";

struct program {
    struct net_run net;
    struct boot *boot; /* of the fork */
    char dir[96];
    int round;
    bool kept; /* what a life has left: see left_behind */
};

/* The run as the call finds it: open, or prepared; or either of them with a checkpoint
 * that is on the nodes alone, of an earlier life or of this one. */
enum before { OPENED, PREPARED, LEFT, STAGED };

struct call {
    const char *name, *strategy, *more;
    enum before before;
    accel_status_t (*act)(struct program *p, accel_error_t *err);
    int agreements;     /* 0: a rank that lacks memory ends the run for all */
    const char *resume; /* what the run resumes from, below its directory or a word */
    /* alone in the short form: another row fails at the same allocations and calls */
    bool statuses;
};

static const struct call *now;
/* Every place that fails, not the first and the last between two collectives. */
static bool all_places;
enum { MOST_WRONG = 5 };
enum { ROW_S = 4 * HANG_S }; /* a row is hundreds of runs */

/* where a world begins: at a fault of a rank */
struct from {
    int rank, fault;
};

/* ---- what programs do ------------------------------------------------------------ */

static accel_status_t put_object(void *user, accel_bytes_t *to, accel_error_t *err)
{
    (void)user;
    return accel_bytes_put(to, "object", 6, err);
}

static accel_status_t take_object(void *user, const accel_saved_t *from,
                                  accel_error_t *err)
{
    (void)user, (void)from, (void)err;
    return ACCEL_OK;
}

static accel_status_t look(void *user, const char *dir, accel_error_t *err)
{
    (void)user, (void)dir, (void)err;
    return ACCEL_OK;
}

static accel_status_t open_run(struct program *p, accel_error_t *err)
{
    accel_status_t st = run_net_open(&p->net, p->dir, 0.1f, err);

    ACCEL_TRY(st, accel_register(p->net.run, "common", 1, ACCEL_STATE_COMMON,
                                 put_object, take_object, NULL, err));
    ACCEL_TRY(st, accel_register(p->net.run, "own", 1, ACCEL_STATE_PER_RANK, put_object,
                                 take_object, NULL, err));
    ACCEL_TRY(st, accel_on_save(p->net.run, look, NULL, err));
    ACCEL_TRY(st, accel_on_load(p->net.run, look, NULL, err));
    return st;
}

static accel_status_t prepare(struct program *p, accel_error_t *err)
{
    return run_net_prepare(&p->net, p->dir, err);
}

static accel_status_t save(struct program *p, accel_error_t *err)
{
    return accel_save(p->net.run, err);
}

static accel_status_t save_state(struct program *p, accel_error_t *err)
{
    return accel_save_state(p->net.run, NULL, err);
}

static accel_status_t load_state(struct program *p, accel_error_t *err)
{
    return accel_load_state(p->net.run, NULL, err);
}

static accel_status_t load_part(struct program *p, accel_error_t *err)
{
    char dir[160];

    snprintf(dir, sizeof(dir), "%s/checkpoints/checkpoint_0", p->dir);
    return accel_load_part(p->net.run, dir, NULL, NULL, err);
}

static accel_status_t export_weights(struct program *p, accel_error_t *err)
{
    char dir[160];

    snprintf(dir, sizeof(dir), "%s/weights_%d", p->dir, p->round++);
    return accel_save_weights(p->net.run, dir, "float32", 64, err);
}

static accel_status_t import_weights(struct program *p, accel_error_t *err)
{
    char dir[160];

    snprintf(dir, sizeof(dir), "%s/weights_0", p->dir);
    return accel_load_weights(p->net.run, dir, err);
}

static accel_status_t read_param(struct program *p, accel_error_t *err)
{
    float values[NET_HIDDEN];

    return accel_param_read(p->net.run, "last.weight", ACCEL_ALL_RANKS, values,
                            NET_HIDDEN, err);
}

static accel_status_t write_param(struct program *p, accel_error_t *err)
{
    const float values[NET_HIDDEN] = { 1, 2, 3 };

    return accel_param_write(p->net.run, "last.weight", values, NET_HIDDEN, err);
}

static accel_status_t attempt(void *user, int batch, accel_error_t *err)
{
    (void)user, (void)batch, (void)err;
    return ACCEL_OK;
}

static accel_status_t find_batch(struct program *p, accel_error_t *err)
{
    int size;

    return accel_find_batch_size(p->net.run, 2, attempt, NULL, &size, err);
}

/* ---- between ranks --------------------------------------------------------------- */

/* Values of this rank, and room for those of all. */
static accel_array_t array_of(void *data, accel_dtype_t dtype, int64_t rows)
{
    return (accel_array_t){
        .data = data, .dtype = dtype, .ndim = 2, .dims = { rows, 2 }, .elems = 2 * rows
    };
}

static accel_status_t gather_rows(struct program *p, accel_error_t *err)
{
    const accel_batch_end_t end = { .counted = 1, .count = 1 };
    int32_t own[4] = { 1, 2, 3, 4 }, every[8];
    accel_array_t mine = array_of(own, ACCEL_I32, 2),
                  all = array_of(every, ACCEL_I32, 4);

    return accel_gather_for_metrics_array(p->net.run, &mine, &end, &all, err);
}

static accel_status_t reduce(struct program *p, accel_error_t *err)
{
    float own[2] = { 1, 2 };
    accel_array_t mine = array_of(own, ACCEL_F32, 1);

    return accel_reduce_array(p->net.run, &mine, ACCEL_REDUCE_MEAN, 1, err);
}

static accel_status_t broadcast(struct program *p, accel_error_t *err)
{
    float own[2] = { 1, 2 };
    accel_array_t mine = array_of(own, ACCEL_F32, 1);

    return accel_broadcast_array(p->net.run, &mine, 1, err);
}

static accel_status_t pad(struct program *p, accel_error_t *err)
{
    float own[2] = { 1, 2 }, longer[4];
    accel_array_t mine = array_of(own, ACCEL_F32, 1),
                  all = array_of(longer, ACCEL_F32, 2);

    return accel_pad_across_ranks_array(p->net.run, &mine, 0, 0, 0, &all, err);
}

static accel_status_t gather_bytes(struct program *p, accel_error_t *err)
{
    size_t sizes[LOCKSTEP_RANKS];
    void *all = NULL;
    accel_status_t st = accel_gather_bytes(p->net.run, "own", 3, &all, sizes, err);

    free(all);
    return st;
}

static accel_status_t broadcast_bytes(struct program *p, accel_error_t *err)
{
    void *copy = NULL;
    size_t bytes;
    accel_status_t st =
        accel_broadcast_bytes(p->net.run, "own", 3, 1, &copy, &bytes, err);

    free(copy);
    return st;
}

static accel_status_t barrier(struct program *p, accel_error_t *err)
{
    return accel_barrier(p->net.run, err);
}

#define ON_NODES                                                                       \
    "accel: {checkpoint: {async: false, every_steps: 1, local_dir: %s/node}}\n"

#define POOLED "accel: {checkpoint: {async: true}}\n"

#define BEST "accel: {checkpoint: {keep_best: 1, metric: m}}\n"

#define COMPARED "debug: true\n"

/* The column of numbers: how many agreements the call has where all is well. One more needs
 * its number here, and is then failed at, too. */
static const struct call calls[] = {
    { "accel_save", "FULL_SHARD", NULL, PREPARED, save, 12, NULL, false },
    { "accel_save_state", "FULL_SHARD", NULL, PREPARED, save_state, 13, NULL, false },
    { "accel_load_state", "FULL_SHARD", NULL, PREPARED, load_state, 13, NULL, false },
    { "accel_load_part", "FULL_SHARD", NULL, PREPARED, load_part, 9, NULL, false },
    { "accel_save_weights", "FULL_SHARD", NULL, PREPARED, export_weights, 5, NULL,
      false },
    { "accel_load_weights", "FULL_SHARD", NULL, PREPARED, import_weights, 1, NULL,
      false },
    { "accel_param_read", "FULL_SHARD", NULL, PREPARED, read_param, 2, NULL, false },
    { "accel_param_write", "FULL_SHARD", NULL, PREPARED, write_param, 2, NULL, false },
    { "accel_find_batch_size", "FULL_SHARD", NULL, PREPARED, find_batch, 2, NULL,
      false },
    { "one file: accel_save", "FULL_SHARD\n  fsdp_state_dict_type: FULL_STATE_DICT",
      NULL, PREPARED, save, 15, NULL, false },
    { "with a local_dir: accel_save", "FULL_SHARD", ON_NODES, PREPARED, save, 12, NULL,
      false },
    { "on the nodes: accel_load_state", "FULL_SHARD", ON_NODES, STAGED, load_state, 16,
      NULL, false },
    { "accel_prepare", "FULL_SHARD", NULL, OPENED, prepare, 25, "auto", true },
    { "pool: accel_prepare", "FULL_SHARD", POOLED, OPENED, prepare, 24, "auto", true },
    { "left on the nodes: accel_prepare", "FULL_SHARD", ON_NODES, LEFT, prepare, 40,
      "auto", false },
    { "the best: accel_prepare", "FULL_SHARD", BEST, OPENED, prepare, 26, "best",
      true },
    { "a path: accel_prepare", "FULL_SHARD", NULL, OPENED, prepare, 26,
      "run/checkpoints", true },
    { "counted rows", "NO_SHARD", NULL, PREPARED, gather_rows, 0, NULL, false },
    { "accel_reduce_array", "NO_SHARD", NULL, PREPARED, reduce, 0, NULL, false },
    { "accel_pad_across_ranks_array", "NO_SHARD", NULL, PREPARED, pad, 0, NULL, false },
    { "accel_gather_bytes", "NO_SHARD", NULL, PREPARED, gather_bytes, 0, NULL, false },
    { "accel_broadcast_bytes", "NO_SHARD", NULL, PREPARED, broadcast_bytes, 0, NULL,
      false },
    { "compared: accel_reduce_array", "NO_SHARD", COMPARED, PREPARED, reduce, 0, NULL,
      false },
    { "compared: accel_broadcast_array", "NO_SHARD", COMPARED, PREPARED, broadcast, 0,
      NULL, false },
    { "compared: accel_barrier", "NO_SHARD", COMPARED, PREPARED, barrier, 0, NULL,
      false },
};

/* ---- worlds ---------------------------------------------------------------------- */

static void forget(struct program *p)
{
    if (!p->net.run)
        return;
    p->net.run->status = ACCEL_OK;
    p->net.run->failure = (accel_error_t){ 0 };
}

static accel_status_t close_run(struct program *p)
{
    accel_status_t st;

    forget(p);
    st = accel_close(p->net.run, NULL);
    p->net = (struct net_run){ 0 };
    return st;
}

/* Back at the beginning, a step whose checkpoint goes to the nodes. */
static accel_status_t stage(struct program *p, accel_error_t *err)
{
    accel_status_t st = load_state(p, err);

    return st ? st : run_net_step(&p->net, 0, err);
}

/* Rank 0 carries out a command of the shell, while the others wait. */
static accel_status_t by_one(struct program *p, const char *command, accel_error_t *err)
{
    struct boot_blobs all;
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < 2 && !st; i++) {
        st = boot_exchange(p->boot, NULL, 0, &all, err);
        if (!st)
            boot_blobs_free(&all);
        if (!st && i == 0 && p->boot->rank == 0 && system(command))
            st = accel_error_set(err, ACCEL_EIO, command, "cure");
    }
    return st;
}

static accel_status_t begin_prepared(struct program *p, accel_error_t *err)
{
    accel_status_t st = open_run(p, err);

    return st ? st : prepare(p, err);
}

/* A checkpoint that is on the nodes alone, as a life leaves it that has failed: it copies
 * nothing at its end. Lived once, then put back. */
static accel_status_t left_behind(struct program *p, accel_error_t *err)
{
    char command[256];
    accel_status_t st;

    if (p->kept) {
        snprintf(command, sizeof(command),
                 "cd %s && rm -rf run node && cp -a kept/run kept/node .", root);
        return by_one(p, command, err);
    }
    ACCEL_CHECK(st, begin_prepared(p, err));
    ACCEL_CHECK(st, stage(p, err));
    p->net.run->status = ACCEL_EIO;
    accel_close(p->net.run, NULL);
    p->net = (struct net_run){ 0 };
    p->kept = true;
    snprintf(command, sizeof(command), "cd %s && mkdir kept && cp -a run node kept",
             root);
    return by_one(p, command, err);
}

/* The run as it is before the call. */
static accel_status_t set_up(struct program *p, accel_error_t *err)
{
    accel_status_t st;

    if (now->before == PREPARED)
        return begin_prepared(p, err);
    if (now->before == STAGED) {
        st = begin_prepared(p, err);
        return st ? st : stage(p, err);
    }
    st = now->before == LEFT ? left_behind(p, err) : ACCEL_OK;
    return st ? st : open_run(p, err);
}

/* What an earlier life has left. */
static accel_status_t live_before(struct program *p, accel_error_t *err)
{
    accel_status_t st = begin_prepared(p, err);

    ACCEL_TRY(st, save_state(p, err));
    ACCEL_TRY(st, export_weights(p, err));
    if (now->resume)
        ACCEL_TRY(st, save(p, err));
    if (p->net.run && p->net.run->boot.rank == 0)
        ACCEL_TRY(st,
                  accel_ckpt_note_value(p->net.run->ckpt_dir,
                                        p->net.run->progress.run_id, "m", 0, 1, err));
    ACCEL_TRY(st, close_run(p));
    return st;
}

/* The call; what begins a run begins another one each time. */
static accel_status_t one(struct program *p, accel_error_t *err)
{
    accel_error_t e = { 0 };
    accel_status_t st;

    lockstep_end(now->act(p, &e), &e);
    if (now->before == OPENED || now->before == LEFT) {
        close_run(p);
        return set_up(p, err);
    }
    forget(p);
    if (now->before == PREPARED)
        return ACCEL_OK;
    st = stage(p, err);
    /* A record that could not be removed ends the saves to the nodes: a new world. */
    if (!st && !staging_holds(&p->net.run->staging))
        _exit(LOCKSTEP_EXIT);
    return st;
}

static accel_status_t rounds(struct program *p, const struct from *at,
                             accel_error_t *err)
{
    accel_status_t st = live_before(p, err);
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", root, now->resume ? now->resume : "");
    if (now->resume)
        setenv(ENV_RESUME, strchr(now->resume, '/') ? path : now->resume, 1);
    if (!st)
        st = set_up(p, err);
    for (int r = at->rank; r < LOCKSTEP_RANKS && !st; r++) {
        lockstep_list(r, now->statuses && !all_places            ? LOCKSTEP_STATUSES
                         : all_places && now->before == PREPARED ? LOCKSTEP_ALL
                                                                 : LOCKSTEP_FEW);
        st = one(p, err);
        for (int i = r == at->rank ? at->fault : 0; !st && lockstep_fault(r, i); i++)
            st = one(p, err);
    }
    return st ? st : close_run(p);
}

static int rank_of_world(struct boot *b, void *arg)
{
    struct program p = { .boot = b };
    accel_error_t err = { 0 };

    open_world_join(b);
    lockstep_begin(now->name, now->agreements == 0);
    snprintf(p.dir, sizeof(p.dir), "%s/run", root);
    if (rounds(&p, arg, &err)) {
        fprintf(stderr, "# %s: after fault %d: %s\n", now->name, lockstep_at(),
                err.text);
        return 1;
    }
    open_world_join(NULL);
    return 0;
}

static void play(void)
{
    char dir[96], command[256], more[256];
    struct from at = { 0 };
    int rc, wrong = 0, agreements = 0;

    snprintf(dir, sizeof(dir), "%s/run", root);
    snprintf(command, sizeof(command), "cd %s && rm -rf run node kept", root);
    if (now->more)
        snprintf(more, sizeof(more), now->more, root);
    run_net_config(dir, now->strategy, LOCKSTEP_RANKS, 1, now->more ? more : NULL);
    do {
        lockstep_start();
        rc = open_world(LOCKSTEP_RANKS, 1, rank_of_world, &at, ROW_S);
        at.rank = lockstep_rank();
        at.fault = lockstep_at() + 1;
        wrong += lockstep_wrong();
        agreements = lockstep_agreements();
        if (system(command))
            tap_diag("%s is left", dir);
    } while (rc == LOCKSTEP_EXIT && wrong < MOST_WRONG);
    tap_ok(rc == 0 && wrong == 0, "%s: both ranks end alike (%d)", now->name, rc);
    tap_is_int(agreements, now->agreements, "after so many agreements");
}

int main(int argc, char **argv)
{
    char command[96];

    unsetenv(ENV_RESOLVED);
    unsetenv(ENV_CONFIG);
    if (!mkdtemp(root))
        tap_skip_all("no directory for temporary files");
    all_places = argc > 1 && strcmp(argv[1], "--all") == 0;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(calls); i++) {
        now = &calls[i];
        if (argc < 2 || all_places || strstr(now->name, argv[1]))
            play();
    }
    if (argc < 2)
        agreement_sites_check();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    tap_ok(system(command) == 0, "removed");
    return tap_done();
}
