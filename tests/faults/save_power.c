/* SPDX-License-Identifier: Apache-2.0
 *
 * save_power [all]: power is lost (power_model.h) before each call of a run that saves
 * every step, at once, in the background, and on its node first (there before every
 * third call; with `all` before each, and also in the background), and deletes older
 * ones. Whatever is left: the checkpoint that was last reported as saved loads, or a
 * newer one, or it can be copied from the node; all that look complete are whole, and
 * another life goes on from there.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/save/background.h"
#include "checkpoint/ckpt_internal.h"
#include "tests/faults/saves_world.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/fork_world.h"
#include "tests/unit/power_model.h"

enum { ROWS = 20, STEPS = 4 };

static char lost_dir[320], lost_root[400];
static long calls, moments, wrong, copies;
/* of the calls one in so many is a moment */
static int stride = 1;

/* ---- the model watches one thread at a time: the training waits for all others ----- */

static atomic_bool deleting;

accel_status_t __real_accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                              const accel_ckpt_coll_t *coll,
                                              accel_ckpt_stats_t *stats_out,
                                              accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                              const accel_ckpt_coll_t *coll,
                                              accel_ckpt_stats_t *stats_out,
                                              accel_error_t *err)
{
    const accel_status_t st = __real_accel_ckpt_save_publish(g, coll, stats_out, err);

    deleting = st == ACCEL_OK;
    return st;
}

void __real_accel_ckpt_save_retain(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_retain(accel_ckpt_saving_t *g)
{
    __real_accel_ckpt_save_retain(g);
    deleting = false;
}

static void await(const struct background *b)
{
    while (deleting || background_writes(b))
        sched_yield();
}

accel_status_t __real_background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                       const accel_ckpt_coll_t *coll,
                                       accel_error_t *err);
accel_status_t __wrap_background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                       const accel_ckpt_coll_t *coll,
                                       accel_error_t *err)
{
    const accel_status_t st = __real_background_begin(run, s, coll, err);

    await(&run->background);
    return st;
}

accel_status_t __real_background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                          const accel_ckpt_coll_t *coll,
                                          accel_ckpt_stats_t *stats_out,
                                          accel_error_t *err);
accel_status_t __wrap_background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                          const accel_ckpt_coll_t *coll,
                                          accel_ckpt_stats_t *stats_out,
                                          accel_error_t *err)
{
    const accel_status_t st = __real_background_save_now(run, s, coll, stats_out, err);

    await(&run->background);
    return st;
}

accel_status_t __real_background_publish(struct background *b,
                                         const accel_ckpt_coll_t *coll,
                                         accel_ckpt_stats_t *stats_out,
                                         accel_error_t *err);
accel_status_t __wrap_background_publish(struct background *b,
                                         const accel_ckpt_coll_t *coll,
                                         accel_ckpt_stats_t *stats_out,
                                         accel_error_t *err)
{
    const accel_status_t st = __real_background_publish(b, coll, stats_out, err);

    await(b);
    return st;
}

void __real_background_write(struct background *b, int64_t step);
void __wrap_background_write(struct background *b, int64_t step)
{
    __real_background_write(b, step);
    await(b);
}

/* Removals on the node. */
void __wrap_background_do(struct background *b, accel_t *run,
                          void (*work)(accel_t *run))
{
    (void)b;
    work(run);
}

/* ---- what is on the node --------------------------------------------------------- */

/* Can the checkpoint `step`, or a newer one, be copied from what is left of the node? It
 * is done, in what is left. */
static bool copied_from_node(int64_t step)
{
    char node[sizeof(lost_dir) + 10];
    accel_ckpt_staged_t *list = NULL;
    bool copied = false;
    size_t n = 0;

    snprintf(node, sizeof(node), "%s/node", lost_dir);
    if (accel_ckpt_list_staged(lost_root, &list, &n, NULL))
        return false;
    for (size_t i = 0; i < n && !copied && list[i].step >= step; i++) {
        const accel_ckpt_save_t s = { sizeof(s), .root = lost_root, .owner = "later.1",
                                      .keep = 9, .local = node };
        accel_ckpt_saving_t *saving = NULL;

        if (accel_ckpt_drain_begin(&saving, list[i].name, &s, NULL, NULL))
            continue;
        (void)accel_ckpt_save_write(saving, NULL);
        copied = __real_accel_ckpt_save_publish(saving, NULL, NULL, NULL) == ACCEL_OK;
        accel_ckpt_save_free(saving);
    }
    free(list);
    return copied;
}

/* ---- the power goes -------------------------------------------------------------- */

static int power_goes(const char *call, const char *name, int fd)
{
    void (*const watch)(int) = disk_synced;

    (void)fd;
    if (strcmp(call, "open") == 0 || strcmp(call, "openat") == 0)
        return 0; /* changes nothing */
    if (calls++ % stride != 0)
        return 0;
    disk_synced = NULL;
    moments++;
    for (int mix = 0; mix < POWER_MIXES; mix++) {
        int64_t got;

        power_lose(mix);
        got = access(lost_root, F_OK) == 0 ? saves_newest(lost_root, ROWS) : -1;
        if (got >= -1 && got < saves_said->saved &&
            copied_from_node(saves_said->saved)) {
            copies++;
            got = saves_newest(lost_root, ROWS);
        }
        if (got < saves_said->saved && wrong++ < 5)
            tap_diag("before %s(%s), mix %d: %lld, but %lld was saved", call, name, mix,
                     (long long)got, (long long)saves_said->saved);
    }
    disk_synced = watch;
    return 0;
}

static void from_now(int rank)
{
    (void)rank;
    disk_hook = power_goes;
}

/* Another life, of another process, in what is left in the end. */
static void goes_on(const struct saves_life *life, int mix, const char *mode)
{
    struct saves_life next = *life;
    char kept[sizeof(saves_dir)];

    snprintf(kept, sizeof(kept), "%s", saves_dir);
    power_lose(mix);
    saves_use(lost_dir);
    next.ready = NULL;
    next.steps = STEPS + 2;
    tap_is_int(saves_live(&next, HANG_S), 0, "%s, mix %d: another life", mode, mix);
    tap_is_int(saves_said->begun, STEPS, "goes on");
    tap_is_int(saves_newest(saves_root, ROWS), STEPS + 2, "and saves");
    saves_use(kept);
}

static void test_mode(bool background, bool local)
{
    const char *mode = local && background ? "on the node, in the background"
                       : local             ? "on the node"
                       : background        ? "in the background"
                                           : "at once";
    const struct saves_life life = { .ranks = 1,
                                     .steps = STEPS,
                                     .rows = ROWS,
                                     .background = background,
                                     .local = local,
                                     .keep = 1,
                                     .ready = from_now };
    accel_error_t err = { 0 };
    accel_status_t st;

    calls = moments = wrong = copies = 0;
    st = saves_live_here(&life, &err);
    disk_hook = NULL;
    tap_is_int(st, ACCEL_OK, "%s: %s %s", mode, err.where, err.text);
    tap_is_int(wrong, 0, "at each of its %ld moments what was saved is there", moments);
    tap_ok(moments > 60, "the model saw its calls");
    tap_ok(local ? copies > 60 : copies == 0,
           "%ld times what was saved was copied from the node", copies);
    tap_is_int(saves_newest(saves_root, ROWS), STEPS, "the last one is there");
    for (int mix = 0; mix < POWER_MIXES; mix++)
        goes_on(&life, mix, mode);
    saves_forget();
}

int main(int argc, char **argv)
{
    char dir[330];
    int live;

    (void)argv;
    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    if (!power_begin())
        tap_skip_all("no directory for temporary files");
    snprintf(dir, sizeof(dir), "%s/run", power_live);
    snprintf(lost_dir, sizeof(lost_dir), "%s/run", power_after);
    snprintf(lost_root, sizeof(lost_root), "%s/checkpoints", lost_dir);
    if (strlen(lost_dir) >= sizeof(saves_dir))
        tap_skip_all("the temporary directory has too long a name");
    live = open(power_live, O_RDONLY | O_DIRECTORY);
    if (mkdir(dir, 0777) || live < 0 || fsync(live) || close(live))
        tap_skip_all("no directory for temporary files");
    saves_use(dir);
    test_mode(false, false);
    test_mode(true, false);
    stride = argc > 1 ? 1 : 3;
    test_mode(false, true);
    if (argc > 1)
        test_mode(true, true);
    power_end();
    return tap_done();
}
