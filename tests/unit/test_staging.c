/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that go to the nodes first: what is where at every moment, and what the
 * next life finds on the same nodes and on others, after kills, damage and full disks.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/save/staging.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/world/staging_world.h"

/* Parts of a record that has another name now stay on the node. */
static int goes_on_2(struct boot *b, void *arg)
{
    struct number_run k;

    gate(false);
    EXPECT(!begin(&k, 100) && accel_steps_done(k.run) == 2, "resumed: %s", k.err.text);
    EXPECT(!arg || has_said(b, arg), "said: %s", said);
    accel_close(k.run, NULL);
    return 0;
}
static int records_away(void)
{
    char dir[sizeof(out_dir) + 20];

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    return world_names_in(dir, "^.away-step_");
}

/* ---- cases: each a life ---------------------------------------------------------- */

/* On the nodes at once, in the shared directory at the end of a later step. */
static int copies(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    EXPECT(newest() == -1 && staged(&n) == 2 && n == 1, "step 2 is on the nodes");
    EXPECT(k.run->progress.saved_step == 2 && staging_holds(&k.run->staging),
           "and counts");
    EXPECT(has_said(b, "checkpoint of step 2 saved on the nodes in "), "said: %s",
           said);
    EXPECT(parts(b->rank, NULL) == 1, "one part");
    EXPECT(!step(&k) && newest() == -1, "it is not copied while the thread waits");
    gate(false);
    await_copy(&k);
    EXPECT(newest() == -1, "nothing is visible before a step has ended");
    accel_barrier(k.run, &k.err);
    EXPECT(!step(&k), "step 4: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(newest() == 2, "step 2 is copied: %s", said);
    EXPECT(has_said(b, "checkpoint of step 2 copied from the nodes in "), "said");
    EXPECT(staged(&n) == 4 && n == 1 && parts_left(&k) == 1,
           "its part and record are gone, those of step 4 are there");
    EXPECT(accel_close(k.run, &k.err) == ACCEL_OK, "closed: %s", k.err.text);
    EXPECT(newest() == 4, "the end waits for the copy of step 4");
    return 0;
}

/* Killed in the middle of a save to the nodes, or of a copy. */
static int dies_writing(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    gate(false);
    kill_written = true;
    EXPECT(!begin(&k, 100), "prepare: %s", k.err.text);
    steps(&k, 3);
    return 1;
}

static int dies_copying(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    usleep(50000);
    kill_written = true;
    gate(false);
    sleep(20);
    return 1;
}

/* ... in the copy of a restart. */
static int dies_taking(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    kill_written = true;
    begin(&k, 100);
    return 1;
}

/* Only the newest two stay on the nodes, and what is being copied. */
static int retains(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)b;
    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 8), "steps: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(staged(&n) == 8 && n == 3 && parts_left(&k) == 3,
           "steps 8 and 6, and 2 that is being copied (%zu)", n);
    gate(false);
    await_copy(&k);
    EXPECT(!step(&k), "step 9: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(newest() == 2 && staged(&n) == 8 && n == 2, "then 8 and 6 (%zu)", n);
    await_copy(&k);
    EXPECT(!step(&k), "step 10: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(newest() == 8, "and the newest is copied next");
    accel_close(k.run, NULL);
    return 0;
}

static bool is_sweeping(struct number_run *k)
{
    struct staging *s = &k->run->staging;
    bool works;

    pthread_mutex_lock(&s->sweep.lock);
    works = s->sweep.works;
    pthread_mutex_unlock(&s->sweep.lock);
    return works;
}

/* No step waits for the removal of a part; the next save to the nodes does. A rank that
 * looks before rank 0 has removed the record leaves its part until then. */
static int sweeps(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    await_copy(&k);
    hold_removal(true);
    EXPECT(!step(&k) && newest() == 2, "step 2 is copied: %s", said);
    while (atomic_load(&removals) == 0 && (b->rank == 0 || is_sweeping(&k)))
        sched_yield();
    accel_barrier(k.run, &k.err);
    EXPECT(staged(&n) == -1 && parts(b->rank, NULL) == 1,
           "its record is gone, its part is being removed");
    accel_barrier(k.run, &k.err);
    join_removes = true;
    EXPECT(!step(&k), "step 4: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(staged(&n) == 4 && parts(b->rank, NULL) == 1,
           "only that of step 4 is there");
    hold_removal(false); /* where it left its part, nothing has */
    accel_close(k.run, NULL);
    EXPECT(newest() == 4 && parts(b->rank, NULL) == 0, "and none at the end");
    return 0;
}

/* accel_save and the last step want the shared directory. */
static int is_asked(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    join_opens = true;
    EXPECT(!begin(&k, 7) && !steps(&k, 2), "steps: %s", k.err.text);
    EXPECT(!accel_save(k.run, &k.err) && newest() == 2 &&
               has_said(b, "step 2 saved in"),
           "step 2 is written as it is now: %s", said);
    EXPECT(!accel_save(k.run, &k.err) && newest() == 2, "and again: %s", k.err.text);
    gate(true);
    EXPECT(!steps(&k, 3) && !accel_save(k.run, &k.err), "step 5: %s", k.err.text);
    EXPECT(newest() == 5, "is saved at once");
    accel_barrier(k.run, &k.err);
    EXPECT(staged(&n) == -1 && parts_left(&k) == 0,
           "what the nodes had is of no use then");
    gate(true);
    EXPECT(!steps(&k, 2), "the last step: %s", k.err.text);
    EXPECT(newest() == 7 && !staging_holds(&k.run->staging), "is saved at once: %s",
           said);
    accel_close(k.run, NULL);
    return 0;
}

/* A run that goes back has nothing of later steps on the nodes. */
static int goes_back(struct boot *b, void *arg)
{
    char dir[160];
    struct number_run k;
    size_t n;

    (void)b;
    (void)arg;
    gate(true);
    join_opens = true;
    snprintf(dir, sizeof(dir), "%s/mine", out_dir);
    EXPECT(!begin(&k, 100) && !step(&k) && !accel_save_state(k.run, dir, &k.err),
           "step 1: %s", k.err.text);
    EXPECT(!steps(&k, 3) && staged(&n) == 4, "step 4 is on the nodes: %s", k.err.text);
    EXPECT(!accel_load_state(k.run, dir, &k.err), "back: %s", k.err.text);
    EXPECT(staged(&n) == -1 && newest() == -1, "nothing of it is left: %s", said);
    EXPECT(!step(&k) && staged(&n) == 2, "step 2 is saved again: %s", k.err.text);
    accel_close(k.run, NULL);
    EXPECT(newest() == 2, "and copied");
    return 0;
}

/* ---- failures -------------------------------------------------------------------- */

/* One node's disk fails: the shared directory gets all, and the log says so once. */
static int falls_back(struct boot *b, void *arg)
{
    struct number_run k;
    const char *first;
    size_t n;

    gate(false);
    if (b->rank == b->size - 1)
        fail("mkdirat", "step_", *(int *)arg);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    EXPECT(newest() == 2 && staged(&n) == -1, "step 2 is shared: %s", said);
    EXPECT(!steps(&k, 2) && newest() == 4, "so is step 4: %s", k.err.text);
    fail(NULL, NULL, 0);
    first = strstr(said, "accel.checkpoint.local_dir failed: ");
    EXPECT(b->rank != 0 || (first && !strstr(first + 30, "local_dir failed")),
           "said once: %s", said);
    EXPECT(!strstr(said, "cannot save"), "no save was missed");
    accel_close(k.run, NULL);
    return 0;
}

/* The shared disk is full while it is copied: what is on the nodes stays, and is copied
 * when there is room. */
static int is_full(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    fail("createat", "rank_", ENOSPC);
    gate(false);
    await_copy(&k);
    fail(NULL, NULL, 0);
    EXPECT(!step(&k), "training goes on: %s", k.err.text);
    EXPECT(newest() == -1 && staged(&n) == 2, "step 2 stays on the nodes");
    EXPECT(has_said(b, "cannot copy the checkpoint of step 2 from the nodes: ") &&
               has_said(b, "and it stays on the nodes"),
           "said: %s", said);
    EXPECT(!k.run->staging.drain.in_flight && k.run->staging.on, "not tried each step");
    EXPECT(!step(&k) && k.run->staging.drain.in_flight, "the next one is: %s",
           k.err.text);
    EXPECT(accel_close(k.run, &k.err) == ACCEL_OK && newest() == 4, "copied: %s", said);
    return 0;
}

/* A byte of the part is another one. */
static void damage(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[800];

    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "rank_", 5) == 0) {
            snprintf(path, sizeof(path), "%s/%.80s", dir, e->d_name);
            world_flip(path, 100, 0);
        }
    if (d)
        closedir(d);
}

static void damage_6(const char *dir)
{
    if (strstr(dir, "/step_00000006."))
        damage(dir);
}

static int is_damaged(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    if (b->rank == 0)
        parts(0, damage);
    accel_barrier(k.run, &k.err);
    gate(false);
    await_copy(&k);
    EXPECT(!step(&k), "training goes on: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(newest() == -1 && staged(&n) == -1, "it is no checkpoint");
    EXPECT(k.run->progress.saved_step == -1 && !k.run->staging.on, "nothing is saved");
    EXPECT(has_said(b, "cannot copy the checkpoint of step 2 from the nodes: "),
           "said: %s", said);
    EXPECT(!step(&k) && newest() == 4, "the next one is shared: %s", k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* The newest of three is damaged: the one before it stays, and is copied. */
static int loses_one(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 6), "steps: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    if (b->rank == b->size - 1)
        parts(b->rank, damage_6);
    accel_barrier(k.run, &k.err);
    gate(false);
    await_copy(&k);
    EXPECT(!step(&k) && newest() == 2, "step 2 is copied: %s", said);
    await_copy(&k);
    EXPECT(!staging_go_on(k.run, true, &k.err), "step 6: %s", k.err.text);
    EXPECT(has_said(b, "cannot copy the checkpoint of step 6 from the nodes: "),
           "is damaged: %s", said);
    accel_barrier(k.run, &k.err);
    EXPECT(staged(&n) == 4 && n == 1 && k.run->progress.saved_step == 4,
           "step 4 is not (%zu)", n);
    await_copy(&k);
    EXPECT(!staging_go_on(k.run, true, &k.err), "step 4: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    EXPECT(newest() == 4 && staged(&n) == -1, "is copied: %s", said);
    accel_close(k.run, NULL);
    return 0;
}

/* A later life has begun: neither a copy nor a save to the nodes becomes one. */
static int is_fenced(struct boot *b, void *arg)
{
    char path[160];
    struct number_run k;
    size_t n;
    FILE *f;

    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, arg ? 3 : 2), "steps: %s", k.err.text);
    accel_barrier(k.run, &k.err);
    if (b->rank == 0) {
        snprintf(path, sizeof(path), "%s/checkpoints/.lock", out_dir);
        f = fopen(path, "w");
        fprintf(f, "job 9 (restart 1) on n, process 1, since 2026-01-01 12:00:00\n");
        fclose(f);
    }
    accel_barrier(k.run, &k.err);
    if (!arg) {
        gate(false);
        await_copy(&k);
    }
    EXPECT(step(&k) == ACCEL_EUNAVAIL && (b->rank || message_of(&k.err) == A0823),
           "the run ends: %s", k.err.text);
    EXPECT(newest() == -1 && staged(&n) == 2 && n == 1, "with nothing new");
    gate(false);
    accel_close(k.run, NULL);
    return 0;
}

static void test_lives(int world)
{
    static char one[] = "steps 1 to 2 are lost and will be done again",
                two[] = "steps 3 to 4 are lost and will be done again: the newest "
                        "checkpoint in ",
                taken[] = "the checkpoint of step 4 was on the nodes: copied to ";

    new_case(world, "between", "");
    life(world, "killed between", dies_between, NULL, KILLED);
    life(world, "the copy of the restart is killed", dies_taking, NULL, KILLED);
    life_finds(world, "the next life takes it", 2, NULL);
    new_case(world, "two", "");
    life(world, "killed with two on the nodes", dies_with_two, NULL, KILLED);
    life_finds(world, "the newer is taken", 4, NULL);
    new_case(world, "later", "");
    life(world, "killed with a newer one on the nodes", dies_later, NULL, KILLED);
    life_finds(world, "taken", 4, taken);
    new_case(world, "elsewhere", "");
    life(world, "killed with a newer one on the nodes", dies_later, NULL, KILLED);
    moved_rank = world - 1;
    setenv("ACCEL_RESTART_COUNT", "1", 1);
    life(world, "restarted by Slurm, one rank is elsewhere", goes_on_2, two, 0);
    unsetenv("ACCEL_RESTART_COUNT");
    tap_is_int(records_away(), 1, "its record is called another name");
    moved_rank = -1;
    tap_ok(parts(world - 1, NULL) == 1, "its part is where it was");
    life(world, "back on the old nodes, the older history goes on", goes_on_2, NULL, 0);
    tap_ok(parts(world - 1, NULL) == 1 && records_away() == 1, "and keeps both");
    new_case(world, "damaged", "");
    life(world, "killed between", dies_between, NULL, KILLED);
    parts(0, damage);
    life_finds(world, "damaged", 0, one);
    new_case(world, "writing", "");
    life(world, "killed in a save to the nodes", dies_writing, NULL, KILLED);
    life_finds(world, "which is no checkpoint", 0, NULL);
    new_case(world, "copying", "");
    life(world, "killed in a copy", dies_copying, NULL, KILLED);
    life_finds(world, "which is made again", 2, NULL);
}

static void test_failures(int world)
{
    static int errors[] = { ENOSPC, EIO, EROFS, EACCES };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(errors); i++) {
        char name[20];

        snprintf(name, sizeof(name), "falls-%zu", i);
        new_case(world, name, "");
        life(world, "falls back", falls_back, &errors[i], 0);
    }
    new_case(world, "full", "");
    life(world, "the shared disk is full", is_full, NULL, 0);
    new_case(world, "broken", "");
    life(world, "a part is damaged", is_damaged, NULL, 0);
    new_case(world, "loses", "");
    life(world, "one of three is damaged", loses_one, NULL, 0);
    new_case(world, "fenced", "");
    life(world, "a later life, and a copy", is_fenced, NULL, 0);
    new_case(world, "fenced-save", "");
    life(world, "a later life, and a save", is_fenced, out_dir, 0);
}

int main(void)
{
    staging_world_begin();
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++) {
        apart = world == 2;
        new_case(world, "copies", "");
        life(world, "copies", copies, NULL, 0);
        new_case(world, "background", "    async: true\n    when_busy: wait\n");
        life(world, "killed, saves in the background", dies_between, NULL, KILLED);
        new_case(world, "retains", "");
        life(world, "retains", retains, NULL, 0);
        new_case(world, "sweeps", "");
        life(world, "removes", sweeps, NULL, 0);
        new_case(world, "asked", "");
        life(world, "is asked", is_asked, NULL, 0);
        new_case(world, "back", "");
        life(world, "goes back", goes_back, NULL, 0);
        test_lives(world);
        test_failures(world);
    }
    staging_world_end();
    return tap_done();
}
