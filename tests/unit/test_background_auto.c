/* SPDX-License-Identifier: Apache-2.0
 *
 * accel.checkpoint.async: auto, the default. The memory that is left is what the test
 * says: a copy is there or not, the same on all ranks, and a save follows either way.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/run_boxes.h"
#include "state/save/background.h"
#include "backend/device.h"
#include "checkpoint/accel_ckpt.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/held_run.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

static char root[] = "/tmp/accel-auto.XXXXXX";
static int my_rank;

/* ---- the memory ------------------------------------------------------------------ */

/* Bytes of the node beyond twice the copies of its ranks, as the last rank sees it; and
 * of rank 0's process, which has all there is of so small a model, beyond twice its own.
 */
static int64_t node_more, process_more;
/* no memory from here on */
static bool poor_start, poor_pool, poor_now;
static struct number_run *now;
static int asked;

static int64_t own_bytes(void)
{
    struct run_boxes boxes = { 0 };
    int64_t bytes = 0;

    if (!run_boxes_list(now->run, &boxes, NULL))
        bytes = (int64_t)pool_bytes(&boxes);
    run_boxes_free(&boxes);
    return bytes;
}

static bool is_last(void)
{
    return my_rank == now->run->boot.size - 1;
}

struct memory_left __wrap_observe_node_left(const char *path);
struct memory_left __wrap_observe_node_left(const char *path)
{
    const int64_t all = 2 * now->run->plan.checkpoint_bytes;

    (void)path;
    asked++;
    poor_now = poor_pool && is_last();
    return (struct memory_left){ all + (is_last() ? node_more : 0), "the test" };
}

struct memory_left __wrap_observe_process_left(const char *path);
struct memory_left __wrap_observe_process_left(const char *path)
{
    (void)path;
    return (struct memory_left){ 2 * own_bytes() + (my_rank ? 0 : process_more),
                                 "ulimit -x" };
}

static accel_status_t (*real_alloc)(const struct backend *be, enum backend_memory kind,
                                    size_t bytes, void **ptr_out, accel_error_t *err);

static accel_status_t alloc_or_not(const struct backend *be, enum backend_memory kind,
                                   size_t bytes, void **ptr_out, accel_error_t *err)
{
    if (poor_now)
        return accel_fail_nomem(err, "what the test refuses", bytes);
    return real_alloc(be, kind, bytes, ptr_out, err);
}

accel_status_t __real_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err)
{
    struct backend *be = (struct backend *)(uintptr_t)run->backend;

    real_alloc = be->alloc;
    be->alloc = alloc_or_not;
    poor_now = poor_start && is_last();
    return __real_staging_open(run, err);
}

static bool has_said(const char *text)
{
    return my_rank != 0 || strstr(said, text);
}

static accel_status_t start(struct boot *b, struct number_run *k, int64_t last)
{
    my_rank = b->rank;
    now = k;
    return begin(k, last);
}

/* ---- cases ----------------------------------------------------------------------- */

/* The first save is at once, and a stop knows its time; those that follow are not, and
 * none is left out. */
static int goes_behind(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    gate(true);
    EXPECT(!start(b, &k, 100), "prepare: %s", k.err.text);
    EXPECT(k.run->background.on && asked == 1, "exactly enough memory");
    EXPECT(!steps(&k, 2), "step: %s", k.err.text);
    EXPECT(newest() == 2 && !k.run->background.in_flight, "step 2 is saved at once");
    EXPECT(b->rank != 0 || k.run->life.pace.at_once > 0, "and timed");
    EXPECT(!steps(&k, 3), "step: %s", k.err.text);
    EXPECT(newest() == 2 && k.run->background.in_flight && k.run->background.step == 4,
           "step 4 is in flight");
    gate(false);
    EXPECT(!steps(&k, 1), "step: %s", k.err.text);
    EXPECT(newest() >= 4 && k.run->background.skipped == 0 && has_said("step 4 saved"),
           "step 6 has waited for it: %s", said);
    EXPECT(accel_close(k.run, &k.err) == ACCEL_OK, "closed");
    EXPECT(newest() == 6, "with step 6");
    return 0;
}

/* The time is known from the life before. */
static int goes_on_behind(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    EXPECT(!start(b, &k, 100), "prepare: %s", k.err.text);
    gate(true);
    EXPECT(!steps(&k, 2), "step: %s", k.err.text);
    EXPECT(newest() == 6 && k.run->background.in_flight, "step 8 is in flight");
    gate(false);
    EXPECT(!accel_save(k.run, &k.err) && newest() == 8, "and durable when asked for");
    accel_close(k.run, NULL);
    return 0;
}

/* Training waits for each save. */
static int goes_at_once(struct boot *b, const char *line)
{
    struct number_run k;

    EXPECT(!start(b, &k, 100), "prepare: %s", k.err.text);
    EXPECT(!k.run->background.on && !k.run->background.pool, "no rank has a copy");
    EXPECT(has_said(line) && has_said("training waits for each checkpoint") &&
               has_said("accel.checkpoint.async to true"),
           "said: %s", said);
    for (int at = 2; at <= 4; at += 2) {
        EXPECT(!steps(&k, 2), "step: %s", k.err.text);
        EXPECT(newest() == at && !k.run->background.in_flight, "step %d is there", at);
    }
    accel_close(k.run, NULL);
    return 0;
}

static int lacks_on_node(struct boot *b, void *arg)
{
    (void)arg;
    node_more = -1;
    return goes_at_once(b, "more than half of the ") ||
           (b->rank == 0 && !strstr(said, " that the test leaves"));
}

static int lacks_in_process(struct boot *b, void *arg)
{
    (void)arg;
    process_more = -1;
    return goes_at_once(b, " that ulimit -x leaves");
}

/* What was left was gone when it was asked for. */
static int cannot_have(struct boot *b, void *arg)
{
    (void)arg;
    poor_pool = true;
    return goes_at_once(b, "which cannot be had");
}

/* accel.checkpoint.async: true does not ask. */
static int insists(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    node_more = process_more = -1;
    EXPECT(!start(b, &k, 100), "prepare: %s", k.err.text);
    EXPECT(k.run->background.on && asked == 0, "it has a copy");
    EXPECT(!strstr(said, "training waits"), "nothing to say: %s", said);
    accel_close(k.run, NULL);
    return 0;
}

/* ... and fails where it cannot be had. */
static int insists_in_vain(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    poor_start = true;
    EXPECT(start(b, &k, 100) == ACCEL_ENOMEM, "prepare: %s", k.err.text);
    EXPECT(!is_last() || k.err.text[0], "with a reason: %s", k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* A copy that has grown cannot be had: the save is made at once, and all that follow. */
static int loses_copy(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    EXPECT(!start(b, &k, 100), "prepare: %s", k.err.text);
    EXPECT(!steps(&k, 2), "step: %s", k.err.text);
    poor_now = b->rank == 0;
    k.run->background.pool_bytes = 0;
    EXPECT(!steps(&k, 2), "step: %s", k.err.text);
    EXPECT(newest() == 4 && !k.run->background.on && k.run->progress.failed_saves == 0,
           "step 4 is there: %s", said);
    EXPECT(has_said("no memory for the copy of step 4"), "said: %s", said);
    EXPECT(!steps(&k, 2) && newest() == 6, "and step 6: %s", k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* ---- */

static void run_case(int world, const char *name, const char *keys,
                     int (*fn)(struct boot *, void *))
{
    if (keys) {
        snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", root, name, world);
        held_config(world, keys);
    }
    tap_is_int(open_world(world, 1, fn, NULL, HANG_S), 0, "%s on %d ranks", name,
               world);
}

int main(void)
{
    static const char insist[] = "    async: true\n";

    unsetenv("SLURM_JOB_ID");
    trainer_passes = true;
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/a.yaml", root);
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++) {
        run_case(world, "goes behind", "", goes_behind);
        run_case(world, "goes on behind", NULL, goes_on_behind);
        run_case(world, "lacks on the node", "", lacks_on_node);
        run_case(world, "lacks in a process", "", lacks_in_process);
        run_case(world, "cannot have", "    async: auto\n", cannot_have);
        run_case(world, "insists", insist, insists);
        run_case(world, "insists in vain", insist, insists_in_vain);
        run_case(world, "loses the copy", "", loses_copy);
    }
    run_folder_remove(root);
    return tap_done();
}
