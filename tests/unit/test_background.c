/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that are written in the background: the writers are held until the test
 * lets them go, so that each case is the same every time. The weight of a step is its
 * number: w falls by 1 in each.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "state/run_boxes.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "checkpoint/accel_ckpt.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/held_run.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

static char root[] = "/tmp/accel-background.XXXXXX";
static int my_rank;

/* ---- the gate -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static bool join_opens; /* whoever waits for a writer lets it go */
static int refuse;      /* errno of this rank's fsync of its file; 0: it succeeds */
static __thread bool in_write;

/* Calls of the saves' threads, and those whose thread does not give way to the training:
 * nice 19, and the last of the best effort for the disk where there is such a thing. */
static atomic_int thread_calls, eager_calls;
static int own_priority; /* of this program, and of the thread that trains */

static void note_priority(void)
{
    const long disk = syscall(SYS_ioprio_get, 1, 0);

    if (is_trainer())
        return;
    thread_calls++;
    if (getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)) != 19 ||
        (disk >= 0 && disk != (2 << 13 | 7)))
        eager_calls++;
}

static accel_status_t note_write(accel_ckpt_saving_t *g, accel_error_t *err)
{
    accel_status_t st;

    note_priority();
    in_write = true;
    st = __real_accel_ckpt_save_write(g, err);
    in_write = false;
    return st;
}

/* Who deletes waits until somebody waits for him; `overlap`: a save has begun before. */
static int joins, delete_at;
static atomic_bool deleting, overlap;
/* of the last save that began; how often a writer was told that somebody waits */
static double spread;
static int hurries;
/* seconds that each save takes, by its statistics, half of them spread; 0: as it is */
static double measured;
static int cancels;
/* so long takes a commit */
static int commit_ms;

typeof(accel_ckpt_save_retain) __real_accel_ckpt_save_retain,
    __wrap_accel_ckpt_save_retain;
void __wrap_accel_ckpt_save_retain(accel_ckpt_saving_t *g)
{
    note_priority();
    pthread_mutex_lock(&lock);
    while (joins < delete_at)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
    __real_accel_ckpt_save_retain(g);
    deleting = false;
}

typeof(accel_ckpt_save_publish) __real_accel_ckpt_save_publish,
    __wrap_accel_ckpt_save_publish;
accel_status_t __wrap_accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                              const accel_ckpt_coll_t *coll,
                                              accel_ckpt_stats_t *stats_out,
                                              accel_error_t *err)
{
    const accel_status_t st = __real_accel_ckpt_save_publish(g, coll, stats_out, err);

    poll(NULL, 0, commit_ms);
    if (st == ACCEL_OK && measured > 0) {
        stats_out->seconds = measured;
        stats_out->spread_seconds = measured / 2;
    }
    /* its thread begins after this call */
    delete_at = joins + 1;
    deleting = st == ACCEL_OK && my_rank == 0;
    return st;
}

typeof(accel_ckpt_save_begin) __real_accel_ckpt_save_begin,
    __wrap_accel_ckpt_save_begin;
accel_status_t __wrap_accel_ckpt_save_begin(accel_ckpt_saving_t **saving_out,
                                            const accel_ckpt_save_t *s,
                                            const accel_ckpt_coll_t *coll,
                                            accel_error_t *err)
{
    overlap = overlap || deleting;
    spread = s->spread_seconds;
    return __real_accel_ckpt_save_begin(saving_out, s, coll, err);
}

void __real_accel_ckpt_save_hurry(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_hurry(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_hurry(accel_ckpt_saving_t *g)
{
    hurries++;
    __real_accel_ckpt_save_hurry(g);
}

void __real_accel_ckpt_save_cancel(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_cancel(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_cancel(accel_ckpt_saving_t *g)
{
    cancels++;
    __real_accel_ckpt_save_cancel(g);
}

int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
    pthread_mutex_lock(&lock);
    joins++;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
    if (join_opens)
        gate(false);
    return __real_pthread_join(thread, result);
}

/* Copies end when they are waited for, as those of a device do. */
static bool copies_late;

typeof(background_snapshot) __real_background_snapshot, __wrap_background_snapshot;
accel_status_t __wrap_background_snapshot(accel_t *run, struct run_boxes *boxes,
                                          accel_error_t *err)
{
    const accel_status_t st = __real_background_snapshot(run, boxes, err);

    run->background.copying = copies_late;
    return st;
}

static int no_fsync(const char *call, const char *name, int fd)
{
    (void)name;
    (void)fd;
    return in_write && strcmp(call, "fsync") == 0 ? refuse : 0;
}

/* ---- a run ----------------------------------------------------------------------- */

/* Until this rank's file is written. */
static void await_write(const accel_t *run)
{
    while (background_writes(&run->background))
        sched_yield();
}

/* Until the files of all ranks are. */
static void await_all(struct number_run *k)
{
    await_write(k->run);
    accel_barrier(k->run, &k->err);
}

static size_t checkpoints(void)
{
    accel_ckpt_info_t *list = NULL;
    char dir[sizeof(out_dir) + 20];
    size_t n = 0;

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    accel_ckpt_list(dir, &list, &n, NULL);
    free(list);
    return n;
}

static bool has_said(const char *text)
{
    return my_rank != 0 || strstr(said, text);
}

static bool is_last(const struct number_run *k)
{
    return my_rank == k->run->boot.size - 1;
}

/* A life that must find step `want`, and the weight of that step. */
static int finds(struct boot *b, void *arg)
{
    const int64_t want = *(int64_t *)arg;
    struct number_run k;

    my_rank = b->rank;
    gate(false);
    EXPECT(!begin(&k, 100), "prepare: %s", k.err.text);
    EXPECT(accel_steps_done(k.run) == want, "resumed from %lld",
           (long long)accel_steps_done(k.run));
    number_begin(&k);
    EXPECT(number_of(&k, k.a) == (float)(START - want), "its weight: %g",
           (double)number_of(&k, k.a));
    accel_close(k.run, NULL);
    return 0;
}

/* ---- cases: each a life of its own, in a folder of its own ----------------------- */

/* Training goes on while the writers are held, the next save is left out, and the
 * checkpoint has the weights of its step. */
static int goes_on(struct number_run *k)
{
    const struct background *w = &k->run->background;

    EXPECT(!steps(k, 5), "step: %s", k->err.text);
    EXPECT(newest() == -1 && w->in_flight && w->step == 2 &&
               k->run->progress.saved_step == -1,
           "step 2 is in flight");
    EXPECT(w->skipped == 1 && has_said("step 4 is left out: that of step 2"),
           "that of step 4 is left out: %s", said);
    gate(false);
    await_write(k->run);
    EXPECT(newest() == -1, "nothing is visible before all agree");
    k->err = (accel_error_t){ .code = ACCEL_EINVAL, .text = "the program ends it" };
    accel_give_up(k->run, ACCEL_EINVAL, &k->err);
    accel_close(k->run, NULL);
    EXPECT(newest() == -1, "a rank that gives up commits nothing");
    return 0;
}

/* The commit comes with the first step that finds all ranks done. */
static int commits(struct number_run *k)
{
    const struct background *w = &k->run->background;

    gate(is_last(k));
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    if (!is_last(k))
        await_write(k->run);
    EXPECT(!step(k), "step: %s", k->err.text);
    EXPECT(newest() == -1, "one rank still writes");
    gate(false);
    await_all(k);
    EXPECT(!step(k), "step: %s", k->err.text);
    EXPECT(newest() == 2 && k->run->progress.saved_step == 2, "step 2 is visible");
    EXPECT(has_said("checkpoint of step 2 saved"), "and said: %s", said);
    EXPECT(w->in_flight && w->step == 4, "and step 4 begins");
    gate(false);
    accel_close(k->run, NULL);
    EXPECT(newest() == 4, "accel_close commits it");
    return 0;
}

/* accel.checkpoint.when_busy: wait. Also for the thread that deletes. */
static int waits(struct number_run *k)
{
    const struct background *w = &k->run->background;

    EXPECT(!steps(k, 4), "step: %s", k->err.text);
    EXPECT(newest() == 2 && w->step == 4 && w->in_flight && w->skipped == 0,
           "step 4 has waited for step 2");
    EXPECT(!save_finish(k->run, &k->err), "finished: %s", k->err.text);
    gate(true);
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    EXPECT(w->step == 6 && !overlap, "one after the other");
    accel_close(k->run, NULL);
    EXPECT(my_rank != 0 || (newest() == 6 && checkpoints() == 2),
           "and older ones are deleted (keep: 1, but two always stay)");
    EXPECT(thread_calls >= (my_rank == 0 ? 4 : 3) && eager_calls == 0 &&
               getpriority(PRIO_PROCESS, 0) == own_priority,
           "who writes and who deletes gives way to the training: %d of %d did not",
           eager_calls, thread_calls);
    return 0;
}

/* Until the next save begins, `ago` seconds after the last one, where saves at once and
 * in the background need so many seconds. The one before is committed first: what it
 * needed counts, without the time over which it was spread. */
static bool next_save(struct number_run *k, double at_once, double background,
                      double ago)
{
    accel_t *run = k->run;
    const double bytes = (double)run->plan.checkpoint_bytes,
                 was = run->preemption.pace.background * bytes,
                 want = was > 0 ? (was + measured / 2) / 2 : measured / 2;
    bool right;

    await_all(k);
    right = !step(k) && fabs(run->preemption.pace.background * bytes - want) < 1e-9;
    run->preemption.pace.at_once = at_once / (double)run->plan.checkpoint_bytes;
    run->preemption.pace.background = background / (double)run->plan.checkpoint_bytes;
    run->progress.last_save_ns = clock_ns() - (int64_t)(ago * 1e9);
    return right && !step(k);
}

/* A save takes four times what it needs, or a quarter of the time between two. */
static int takes_time(struct number_run *k)
{
    const struct background *w = &k->run->background;

    measured = 6;
    EXPECT(!step(k), "begun: %s", k->err.text);
    k->run->preemption.pace.background = 10 / (double)k->run->plan.checkpoint_bytes;
    k->run->progress.last_save_ns -= INT64_C(1000000000000);
    EXPECT(!step(k) && w->step == 2 && spread == 0,
           "step 2: what was before is no time between two: %g", spread);
    EXPECT(next_save(k, 0, 10, 1000) && fabs(spread - 40) < 1e-9,
           "step 4: by those in the background: %g", spread);
    EXPECT(next_save(k, 2, 10, 1000) && fabs(spread - 8) < 1e-9,
           "step 6: by those at once, if there are any: %g", spread);
    EXPECT(next_save(k, 10, 10, 100) && spread >= 25 && spread < 40,
           "step 8: the time between: %g", spread);
    EXPECT(next_save(k, 10, 10, 4) && spread == 0, "step 10: there is none: %g",
           spread);
    EXPECT(next_save(k, 2, 10, 1000) && spread > 0, "step 12: spread: %g", spread);
    await_all(k);
    EXPECT(!step(k), "it is there: %s", k->err.text);
    k->run->progress.last_save_ns -= INT64_C(1000000000000);
    gate(true);
    EXPECT(!step(k) && spread > 0, "step 14 is held: %g", spread);
    join_opens = true;
    hurries = 0;
    EXPECT(!step(k) && hurries == 0, "nobody waits for it");
    EXPECT(!step(k) && w->step == 14 && hurries > 0 && w->skipped == 1,
           "step 16 is left out, and that of 14 hurries");
    EXPECT(!accel_save(k->run, &k->err), "one at once: %s", k->err.text);
    accel_close(k->run, NULL);
    return 0;
}

/* The training has moved on when the writers come to their work. */
static int is_late(struct number_run *k)
{
    EXPECT(!steps(k, 3), "step: %s", k->err.text);
    EXPECT(accel_close(k->run, &k->err) == ACCEL_OK, "closed: %s", k->err.text);
    return 0;
}

/* Nothing is written, and nothing committed, before the copy is complete. The next step
 * ends it, or whoever wants the checkpoint. */
static int copies(struct number_run *k)
{
    const struct background *w = &k->run->background;

    copies_late = true;
    EXPECT(!steps(k, 2), "step 2: %s", k->err.text);
    EXPECT(w->in_flight && w->copying && !w->running && background_writes(w),
           "step 2 is copied: that counts as writing");
    EXPECT(!step(k) && !w->copying && w->running && newest() == -1,
           "step 3 ends the copy, and the write begins");
    gate(false);
    await_all(k);
    EXPECT(!step(k) && newest() == 2 && w->step == 4 && w->copying,
           "step 4 commits it, and is copied itself");
    EXPECT(!save_finish(k->run, &k->err) && newest() == 4 && !w->copying &&
               !w->in_flight,
           "who wants it waits for the copy and the write: %s", k->err.text);
    EXPECT(!steps(k, 2) && w->copying, "step 6 is copied");
    accel_inference_mode(k->run, 1);
    EXPECT(!w->copying && w->running,
           "before an evaluation, however long, it is written");
    accel_inference_mode(k->run, 0);
    await_all(k);
    gate(true);
    EXPECT(!steps(k, 2) && newest() == 6 && w->copying, "step 8 is copied");
    k->run->status = ACCEL_EIO;
    EXPECT(accel_close(k->run, &k->err) == ACCEL_EIO && newest() == 6,
           "a run that has failed commits nothing");
    return 0;
}

/* A run that has failed commits nothing, and does not wait for what it throws away. */
static int throws_away(struct number_run *k)
{
    EXPECT(!steps(k, 2), "step 2: %s", k->err.text);
    cancels = 0;
    k->run->status = ACCEL_EIO;
    EXPECT(accel_close(k->run, &k->err) == ACCEL_EIO && cancels == 1 && newest() == -1,
           "given up: %d", cancels);
    return 0;
}

/* The seconds that training waited for a save include its commit. */
static int counts(struct number_run *k)
{
    const char *line;

    commit_ms = 50;
    EXPECT(!steps(k, 2), "step 2: %s", k->err.text);
    await_all(k);
    EXPECT(!step(k), "step 3: %s", k->err.text);
    commit_ms = 0;
    line = strstr(said, "the training waited ");
    EXPECT(my_rank != 0 || (line && atof(line + 20) >= 0.05), "said: %s", said);
    accel_close(k->run, NULL);
    return 0;
}

/* One rank's disk is full: the others learn it, training goes on, and the next save is
 * whole. */
static int fails(struct number_run *k)
{
    refuse = is_last(k) ? ENOSPC : 0;
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    if (refuse)
        gate(false);
    if (refuse)
        await_write(k->run);
    accel_barrier(k->run, &k->err);
    hurries = 0;
    EXPECT(!step(k) && hurries > 0, "the others need not take their time any more");
    gate(false);
    await_all(k);
    refuse = 0;
    EXPECT(!accel_save(k->run, &k->err) && newest() == 3, "at once: %s", k->err.text);
    EXPECT(has_said("cannot save the checkpoint of step 2") &&
               !strstr(said, "the training waited"),
           "the failure is said: %s", said);
    EXPECT(!step(k), "training goes on: %s", k->err.text);
    EXPECT(!step(k) && !accel_save(k->run, &k->err), "the next one: %s", k->err.text);
    EXPECT(newest() == 5 && k->run->progress.failed_saves == 0, "is whole");
    accel_close(k->run, NULL);
    return 0;
}

/* What saves or loads at once, and the end, come behind the save in flight. */
static int in_order(struct number_run *k)
{
    const struct background *w = &k->run->background;
    char dir[sizeof(out_dir) + 20];

    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    snprintf(dir, sizeof(dir), "%s/mine", out_dir);
    EXPECT(!accel_save_state(k->run, dir, &k->err), "save_state: %s", k->err.text);
    EXPECT(newest() == 2, "the one in flight came first");
    gate(true);
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    EXPECT(!accel_load_state(k->run, dir, &k->err), "load_state: %s", k->err.text);
    EXPECT(accel_steps_done(k->run) == 2 && !w->in_flight, "back at step 2");
    gate(true);
    EXPECT(!steps(k, 5), "step: %s", k->err.text);
    EXPECT(newest() == 7 && !w->in_flight, "the last one is at once");
    EXPECT(accel_close(k->run, &k->err) == ACCEL_OK, "closed");
    return 0;
}

static bool has_step(int step)
{
    char path[sizeof(out_dir) + 60];

    snprintf(path, sizeof(path), "%s/checkpoints/step_%08d/MANIFEST", out_dir, step);
    return access(path, F_OK) == 0;
}

/* Also after a save at once the thread deletes, and the save does not wait for it. What
 * reads or ends the run does. */
static int deletes_later(struct number_run *k)
{
    for (int i = 0; i < 3; i++)
        EXPECT(!step(k) && !accel_save(k->run, &k->err), "saved: %s", k->err.text);
    EXPECT(k->run->progress.saved_step == 3 && has_step(1) && has_step(2),
           "nothing is deleted within a save");
    accel_barrier(k->run, &k->err);
    background_settle(&k->run->background);
    accel_barrier(k->run, &k->err);
    EXPECT(!has_step(1) && has_step(2) && has_step(3), "but soon after it");
    accel_close(k->run, NULL);
    return 0;
}

/* What is deleted once the notice of a stop has come takes the time of the last save. */
static int spares(struct number_run *k)
{
    for (int i = 0; i < 3; i++)
        EXPECT(!step(k) && !accel_save(k->run, &k->err), "saved: %s", k->err.text);
    accel_barrier(k->run, &k->err);
    raise(SIGTERM);
    EXPECT(step(k) != ACCEL_OK, "told to stop");
    accel_close(k->run, NULL);
    EXPECT(has_step(1) && has_step(2) && has_step(3) && has_step(4),
           "nothing is deleted");
    return 0;
}

/* The best stays; its value may come while it is being written, or before. */
static int keeps_best(struct number_run *k)
{
    accel_t *run = k->run;

    EXPECT(accel_note_metric(run, "", 1, &k->err) == ACCEL_EINVAL, "a name is needed");
    for (int i = 1; i <= 12; i++) {
        EXPECT(!step(k), "step: %s", k->err.text);
        if (i == 2)
            EXPECT(!accel_note_metric(run, "accuracy", 0.5, &k->err) &&
                       !accel_note_metric(run, "loss", 9, &k->err) &&
                       !accel_note_metric(run, "accuracy", NAN, &k->err),
                   "late: %s", k->err.text);
        if (i == 5)
            EXPECT(!accel_note_metric(run, "accuracy", 0.7, &k->err) &&
                       !accel_save(run, &k->err),
                   "before: %s", k->err.text);
        if (i == 7)
            EXPECT(!accel_note_metric(run, "accuracy", 0.9, &k->err),
                   "of a step that is not saved: %s", k->err.text);
        accel_barrier(run, &k->err);
    }
    accel_close(run, NULL);
    EXPECT(my_rank != 0 || (has_step(2) && has_step(5) && !has_step(4) &&
                            !has_step(6) && !has_step(8) && has_step(12)),
           "two by their value, and the newest");
    EXPECT(my_rank != 0 || !strstr(said, "keep_best"), "no warning: %s", said);
    return 0;
}

/* Without values the log says so, once. */
static int lacks_values(struct number_run *k)
{
    const char *first;

    EXPECT(!steps(k, 8), "step: %s", k->err.text);
    accel_close(k->run, NULL);
    first =
        strstr(said, "keep_best keeps no checkpoint: no value of accuracy is known");
    EXPECT(my_rank != 0 || (first && !strstr(first + 1, "keep_best")), "said: %s",
           said);
    return 0;
}

/* A signal while one is in flight: it is committed, and the step that the run stops at
 * is saved. */
static int stops(struct number_run *k)
{
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    if (my_rank == 0)
        raise(SIGTERM);
    EXPECT(step(k) != ACCEL_OK, "told to stop");
    EXPECT(newest() == 3 && has_said("checkpoint of step 2 saved") &&
               has_said("checkpoint of step 3 saved"),
           "both are there: %s", said);
    accel_close(k->run, NULL);
    return 0;
}

/* Another run takes the directory while one is in flight: it is not committed. */
static int loses(struct number_run *k)
{
    char path[sizeof(out_dir) + 32];
    FILE *f;

    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    snprintf(path, sizeof(path), "%s/checkpoints/.lock", out_dir);
    if (my_rank == 0) {
        f = fopen(path, "w");
        EXPECT(f && fputs("job 9 (restart 0) on n2, process 5, since "
                          "2026-01-01 12:00:00\n",
                          f) > 0,
               "the other one's line");
        fclose(f);
    }
    gate(false);
    await_all(k);
    EXPECT(step(k) == ACCEL_EUNAVAIL, "the run is told");
    EXPECT(newest() == -1, "nothing is committed");
    accel_close(k->run, NULL);
    EXPECT(newest() == -1, "not in the end, either");
    return 0;
}

/* ---- the table ------------------------------------------------------------------- */

#define BEST "    when_busy: wait\n    keep_best: 2\n    metric: accuracy\n"

static const struct scene {
    const char *name, *more; /* lines of accel.checkpoint */
    int (*act)(struct number_run *k);
    int64_t steps;    /* of the run */
    bool held, opens; /* writers wait at first; who waits for one lets it go */
    int64_t found;    /* the step that the next attempt resumes from; -1: none */
} scenes[] = {
    { "goes on", "", goes_on, 100, true, false, 0 },
    { "commits", "", commits, 100, false, false, 4 },
    { "waits", "    when_busy: wait\n    keep: 1\n", waits, 100, true, true, 6 },
    { "takes time", "", takes_time, 100, false, false, 16 },
    { "is late", "", is_late, 100, true, true, 2 },
    { "copies", "", copies, 100, true, true, 6 },
    { "fails", "", fails, 100, true, false, 5 },
    { "throws away", "", throws_away, 100, true, true, 0 },
    { "counts", "", counts, 100, false, false, 2 },
    { "in order", "", in_order, 7, true, true, 7 },
    { "stops", "", stops, 100, true, true, 3 },
    { "loses", "", loses, 100, true, false, -1 },
    { "deletes later", "    keep: 1\n", deletes_later, 100, false, false, 3 },
    { "spares", "", spares, 100, false, false, 4 },
    { "keeps the best", BEST "    metric_mode: max\n", keeps_best, 100, false, false,
      12 },
    { "lacks values", BEST, lacks_values, 100, false, false, -1 },
};

static int live(struct boot *b, void *arg)
{
    const struct scene *s = arg;
    struct number_run k;

    my_rank = b->rank;
    join_opens = s->opens;
    gate(s->held);
    EXPECT(!begin(&k, s->steps), "prepare: %s", k.err.text);
    return s->act(&k);
}

static void play(struct scene s, int world)
{
    char keys[512];

    snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", root, s.name, world);
    snprintf(keys, sizeof(keys), "    async: true\n%s", s.more);
    held_config(world, keys);
    tap_is_int(open_world(world, 1, live, &s, HANG_S), 0, "%s on %d ranks", s.name,
               world);
    if (s.found >= 0)
        tap_is_int(open_world(world, 1, finds, &s.found, HANG_S), 0,
                   "and the next attempt resumes from step %lld", (long long)s.found);
}

int main(void)
{
    own_priority = getpriority(PRIO_PROCESS, 0);
    disk_hook = no_fsync;
    held_write = note_write;
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/a.yaml", root);
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(scenes); i++)
            play(scenes[i], world);
    run_folder_remove(root);
    return tap_done();
}
