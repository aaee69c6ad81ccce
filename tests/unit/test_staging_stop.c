/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stop chooses where checkpoints go to the nodes first, and which directories
 * they may go to.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "loop/loop.h"
#include "tests/tap.h"
#include "tests/world/staging_world.h"

/* ---- stops ----------------------------------------------------------------------- */

/* The site kills after `kill_wait` seconds; saves take so long, margins included. */
static void set_times(accel_t *run, int kill_wait, double shared, double local)
{
    const double bytes = (double)run->plan.checkpoint_bytes;

    run->preemption.notice =
        (struct notice){ .known = true, .mode = "OFF", .kill_wait = kill_wait };
    run->preemption.pace =
        (struct pace){ .at_once = shared / 1.5 / bytes, .local = local / 1.5 / bytes };
}

/* Step 2 is being copied when step 3 is told to be the last. */
static accel_status_t until_stop(struct number_run *k, const struct boot *b,
                                 int kill_wait, double shared, double local)
{
    gate(true);
    if (begin(k, 100) || steps(k, 2))
        return k->err.code;
    set_times(k->run, kill_wait, shared, local);
    if (b->rank == b->size - 1)
        raise(SIGTERM);
    return step(k);
}

/* The thread must be let go before the run is closed. */
static void end(struct number_run *k)
{
    gate(false);
    accel_close(k->run, NULL);
}

static int stops_local(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    EXPECT(until_stop(&k, b, 1, *(double *)arg, 0.01) == ACCEL_ERESUME, "stopped: %s",
           k.err.text);
    EXPECT(newest() == -1 && staged(&n) == 3 && n == 2, "step 3 is on the nodes");
    EXPECT(message_of(&k.err) == A0907 &&
               tells(b, &k.err, "the state of step 3 is saved in /") &&
               tells(b, &k.err, " on the nodes"),
           "%s", k.err.text);
    EXPECT(has_said(b, "saving step 3 on the nodes (about 0.0 s, in place of one of "),
           "said: %s", said);
    end(&k);
    return 0;
}

/* There is time to copy it as well: then a restart elsewhere has it. */
static int stops_copied(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    await_copy(&k);
    set_times(k.run, 60, 90, 10);
    k.run->preemption.pace.copy = 20 / (double)k.run->plan.checkpoint_bytes;
    if (b->rank == b->size - 1)
        raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(newest() == 3 && message_of(&k.err) == A0907 &&
               !strstr(k.err.text, " on the nodes"),
           "step 3 is shared: %s", k.err.text);
    EXPECT(has_said(b, "saving step 3 on the nodes (") &&
               has_said(b, "checkpoint of step 3 copied from the nodes in "),
           "by way of the nodes: %s", said);
    accel_close(k.run, NULL);
    return 0;
}

/* By what is known a copy takes 560 s of the 54 that are left, or, where `arg` is set,
 * the last one took as long. It is not begun. */
static int stops_uncopied(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    gate(false);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    await_copy(&k);
    set_times(k.run, 60, 90, 10);
    k.run->preemption.pace.copy =
        (arg ? 10 : 560) / (double)k.run->plan.checkpoint_bytes;
    k.run->staging.drain.begun -=
        arg && b->rank == b->size - 1 ? 560000000000 : 1000000000;
    raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(newest() == 2 && staged(&n) == 3 && message_of(&k.err) == A0907 &&
               tells(b, &k.err, " on the nodes"),
           "step 3 is on the nodes: %s", k.err.text);
    EXPECT(has_said(b, "step 3 stays on the nodes: a copy takes 56"), "said: %s", said);
    EXPECT(!k.run->staging.drain.in_flight, "nothing copies");
    EXPECT(k.run->preemption.history.saves[SAVE_COPY] == 1, "step 2's copy was timed");
    end(&k);
    return 0;
}

/* A later life: what copies took is known, and no save to the checkpoint directory is. */
static int knows_copies(struct boot *b, void *arg)
{
    struct number_run k;
    const struct pace *p;
    char path[sizeof(out_dir) + 24];
    FILE *f;

    (void)arg;
    gate(false);
    snprintf(path, sizeof(path), "%s/checkpoints/history", out_dir);
    f = b->rank == 0 ? fopen(path, "a") : NULL; /* a life that was killed */
    EXPECT(b->rank > 0 ||
               (f && fputs("- save step=2 seconds=9.000 bytes=1 copy\n", f) > 0 &&
                fclose(f) == 0),
           "a line more in %s", path);
    EXPECT(!begin(&k, 100), "prepare: %s", k.err.text);
    p = &k.run->preemption.pace;
    EXPECT(b->rank > 0 || p->copy * (double)k.run->plan.checkpoint_bytes >= 0.5,
           "copies were timed");
    EXPECT(p->at_once == 0 && p->background == 0, "apart from saves");
    EXPECT(k.run->preemption.history.save_seconds == 0, "also as the last of them");
    accel_close(k.run, NULL);
    return 0;
}

/* The copy takes longer than there is time. */
static int stops_copying(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "two steps: %s", k.err.text);
    await_copy(&k);
    gate(b->rank == b->size - 1);
    set_times(k.run, 1, 0, 0.001); /* how long one takes is not known */
    raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(newest() == 2 && staged(&n) == 3 && message_of(&k.err) == A0907 &&
               tells(b, &k.err, " on the nodes"),
           "step 3 is on the nodes: %s", k.err.text);
    end(&k);
    return 0;
}

/* Between two steps, where step 2 was staged before: its parts are not written again,
 * which would leave a damaged one to whoever is killed there. */
static int stops_waiting(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    set_times(k.run, 1, 90, 0.01);
    raise(SIGTERM);
    kill_written = true;
    EXPECT(loop_stop_waiting(k.run, &k.err) == ACCEL_ERESUME, "stopped: %s",
           k.err.text);
    kill_written = false;
    EXPECT(staged(&n) == 2 && n == 1, "step 2 is on the nodes");
    EXPECT(b->rank > 0 ||
               (message_of(&k.err) == A0907 && !strstr(said, "saving step 2") &&
                !strstr(said, "local_dir failed") &&
                tells(b, &k.err, "the state of step 2 is saved in /")),
           "%s; said: %s", k.err.text, said);
    end(&k);
    return 0;
}

static int stops_shared(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    EXPECT(until_stop(&k, b, 60, 30, 10) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(newest() == 3 && message_of(&k.err) == A0907 &&
               !strstr(k.err.text, " on the nodes"),
           "step 3 is shared: %s", k.err.text);
    end(&k);
    EXPECT(newest() == 3, "the copy of step 2 was given up");
    return 0;
}

static int stops_late(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)arg;
    EXPECT(until_stop(&k, b, 60, 90, 80) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(staged(&n) == 2 && message_of(&k.err) == A0926 &&
               tells(b, &k.err, "the checkpoint of step 2 is kept"),
           "declined: %s", k.err.text);
    end(&k);
    return 0;
}

/* The nodes cannot have it, and there is no time for the shared directory. */
static int stops_failing(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    set_times(k.run, 60, 90, 10);
    fail("mkdirat", "step_", EROFS);
    raise(SIGTERM);
    EXPECT(step(&k) == ACCEL_ERESUME, "stopped: %s", k.err.text);
    EXPECT(message_of(&k.err) == A0926 && has_said(b, "local_dir failed: "),
           "declined: %s", said);
    fail(NULL, NULL, 0);
    end(&k);
    return 0;
}

/* ---- the directory --------------------------------------------------------------- */

static int is_refused(struct boot *b, void *arg)
{
    struct number_run k;

    local_dir = arg;
    EXPECT(begin(&k, 100) == ACCEL_ECONFIG && (b->rank || message_of(&k.err) == A0862),
           "refused: %s", k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

static void test_stops(int world)
{
    static double slow = 90, unknown;

    new_case(world, "stop", "");
    life(world, "stopped, too slow", stops_local, &slow, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-unknown", "");
    life(world, "stopped, not known", stops_local, &unknown, 0);
    new_case(world, "stop-copied", "");
    life(world, "stopped, with time for a copy", stops_copied, NULL, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-uncopied", "");
    life(world, "stopped, without time for a copy", stops_uncopied, NULL, 0);
    life(world, "its copy is remembered", knows_copies, NULL, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-slower", "");
    life(world, "stopped, the last copy took longer", stops_uncopied, &slow, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-copying", "");
    life(world, "stopped, the copy is late", stops_copying, NULL, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-shared", "");
    life(world, "stopped in time", stops_shared, NULL, 0);
    life_finds(world, "the next life has that step", 3, NULL);
    new_case(world, "stop-late", "");
    life(world, "stopped too late", stops_late, NULL, 0);
    life_finds(world, "the next life has the older step", 2, NULL);
    new_case(world, "stop-waiting", "");
    life(world, "stopped while it waits", stops_waiting, NULL, 0);
    life_finds(world, "the next life has that step", 2, NULL);
    new_case(world, "stop-failing", "");
    life(world, "stopped, the node's disk fails", stops_failing, NULL, 0);
}

static void test_places(int world)
{
    static char shared[160], inside[180], relative[] = "scratch", top[] = "/";

    new_case(world, "places", "");
    snprintf(shared, sizeof(shared), "%s/checkpoints", out_dir);
    snprintf(inside, sizeof(inside), "%s/checkpoints/local", out_dir);
    life(world, "the shared directory", is_refused, shared, 0);
    life(world, "in it", is_refused, inside, 0);
    life(world, "above it", is_refused, staging_root, 0);
    life(world, "the top", is_refused, top, 0);
    life(world, "a relative path", is_refused, relative, 0);
    life(world, "killed between", dies_between, NULL, KILLED);
    life_finds(world, "set as it was", 2, NULL);
}

int main(void)
{
    staging_world_begin();
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++) {
        apart = world == 2;
        test_stops(world);
        test_places(world);
    }
    staging_world_end();
    return tap_done();
}
