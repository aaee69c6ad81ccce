/* SPDX-License-Identifier: Apache-2.0
 *
 * accel.checkpoint.async: auto, the default. The memory that is left is what the test
 * says: a copy is there or not, the same on all ranks, and a save follows either way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A case: a life in a folder of its own. */
static const struct scene {
    const char *name,
        *keys; /* of accel.checkpoint; NULL: folder and keys of the last */
    int (*act)(struct number_run *k);
    accel_status_t begins;
    /* Bytes of the node beyond twice the copies of its ranks, as the last rank sees it;
     * and of rank 0's process, which has all there is of so small a model, beyond twice
     * its own. */
    int64_t node_more, process_more;
    bool poor_start, poor_pool; /* no memory from here on */
    const char *says[2];
} * scene;
static bool poor_now;
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
    poor_now = scene->poor_pool && is_last();
    return (struct memory_left){ all + (is_last() ? scene->node_more : 0), "the test" };
}

struct memory_left __wrap_observe_process_left(const char *path);
struct memory_left __wrap_observe_process_left(const char *path)
{
    (void)path;
    return (struct memory_left){ 2 * own_bytes() + (my_rank ? 0 : scene->process_more),
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
    poor_now = scene->poor_start && is_last();
    return __real_staging_open(run, err);
}

static bool has_said(const char *text)
{
    return my_rank != 0 || strstr(said, text);
}

/* ---- cases ----------------------------------------------------------------------- */

/* The first save is at once, and a stop knows its time; those that follow are not, and
 * none is left out. */
static int goes_behind(struct number_run *k)
{
    gate(true);
    EXPECT(k->run->background.on && asked == 1, "exactly enough memory");
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    EXPECT(newest() == 2 && !k->run->background.in_flight, "step 2 is saved at once");
    EXPECT(my_rank != 0 || k->run->preemption.pace.at_once > 0, "and timed");
    EXPECT(!steps(k, 3), "step: %s", k->err.text);
    EXPECT(newest() == 2 && k->run->background.in_flight &&
               k->run->background.step == 4,
           "step 4 is in flight");
    gate(false);
    EXPECT(!steps(k, 1), "step: %s", k->err.text);
    EXPECT(newest() >= 4 && k->run->background.skipped == 0 && has_said("step 4 saved"),
           "step 6 has waited for it: %s", said);
    EXPECT(accel_close(k->run, &k->err) == ACCEL_OK, "closed");
    EXPECT(newest() == 6, "with step 6");
    return 0;
}

/* The time is known from the life before. */
static int goes_on_behind(struct number_run *k)
{
    gate(true);
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    EXPECT(newest() == 6 && k->run->background.in_flight, "step 8 is in flight");
    gate(false);
    EXPECT(!accel_save(k->run, &k->err) && newest() == 8, "and durable when asked for");
    accel_close(k->run, NULL);
    return 0;
}

/* Training waits for each save. */
static int goes_at_once(struct number_run *k)
{
    EXPECT(!k->run->background.on && !k->run->background.pool, "no rank has a copy");
    EXPECT(has_said(scene->says[0]) && has_said(scene->says[1]) &&
               has_said("training waits for each checkpoint") &&
               has_said("accel.checkpoint.async to true"),
           "said: %s", said);
    for (int at = 2; at <= 4; at += 2) {
        EXPECT(!steps(k, 2), "step: %s", k->err.text);
        EXPECT(newest() == at && !k->run->background.in_flight, "step %d is there", at);
    }
    accel_close(k->run, NULL);
    return 0;
}

/* accel.checkpoint.async: true does not ask. */
static int insists(struct number_run *k)
{
    EXPECT(k->run->background.on && asked == 0, "it has a copy");
    EXPECT(!strstr(said, "training waits"), "nothing to say: %s", said);
    accel_close(k->run, NULL);
    return 0;
}

/* ... and fails where it cannot be had. */
static int insists_in_vain(struct number_run *k)
{
    EXPECT(!is_last() || k->err.text[0], "with a reason: %s", k->err.text);
    accel_close(k->run, NULL);
    return 0;
}

/* A copy that has grown cannot be had: the save is made at once, and all that follow. */
static int loses_copy(struct number_run *k)
{
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    poor_now = my_rank == 0;
    k->run->background.pool_bytes = 0;
    EXPECT(!steps(k, 2), "step: %s", k->err.text);
    EXPECT(newest() == 4 && !k->run->background.on &&
               k->run->progress.failed_saves == 0,
           "step 4 is there: %s", said);
    EXPECT(has_said("no memory for the copy of step 4"), "said: %s", said);
    EXPECT(!steps(k, 2) && newest() == 6, "and step 6: %s", k->err.text);
    accel_close(k->run, NULL);
    return 0;
}

/* ---- the table ------------------------------------------------------------------- */

#define INSIST "    async: true\n"

static const struct scene scenes[] = {
    { .name = "goes behind", .keys = "", .act = goes_behind },
    { .name = "goes on behind", .act = goes_on_behind },
    { .name = "lacks on the node",
      .keys = "",
      .act = goes_at_once,
      .node_more = -1,
      .says = { "more than half of the ", " that the test leaves" } },
    { .name = "lacks in a process",
      .keys = "",
      .act = goes_at_once,
      .process_more = -1,
      .says = { " that ulimit -x leaves", "" } },
    /* what was left was gone when it was asked for */
    { .name = "cannot have",
      .keys = "    async: auto\n",
      .act = goes_at_once,
      .poor_pool = true,
      .says = { "which cannot be had", "" } },
    { .name = "insists",
      .keys = INSIST,
      .act = insists,
      .node_more = -1,
      .process_more = -1 },
    { .name = "insists in vain",
      .keys = INSIST,
      .act = insists_in_vain,
      .begins = ACCEL_ENOMEM,
      .poor_start = true },
    { .name = "loses the copy", .keys = "", .act = loses_copy },
};

static int live(struct boot *b, void *arg)
{
    struct number_run k;

    (void)arg;
    my_rank = b->rank;
    now = &k;
    EXPECT(begin(&k, 100) == scene->begins, "prepare: %s", k.err.text);
    return scene->act(&k);
}

int main(void)
{
    unsetenv("SLURM_JOB_ID");
    trainer_passes = true;
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/a.yaml", root);
    for (int world = 1 + TAP_SANITIZED; world <= 3 - TAP_SANITIZED; world++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(scenes); i++) {
            scene = &scenes[i];
            if (scene->keys) {
                snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", root, scene->name,
                         world);
                held_config(world, scene->keys);
            }
            tap_is_int(open_world(world, 1, live, NULL, HANG_S), 0, "%s on %d ranks",
                       scene->name, world);
        }
    run_folder_remove(root);
    return tap_done();
}
