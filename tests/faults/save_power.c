/* SPDX-License-Identifier: Apache-2.0
 *
 * Power is lost (power_model.h) before each call of a run that saves every step, at once
 * and in the background, and deletes older ones. Whatever is left: the checkpoint that
 * was last reported as saved loads, or a newer one, all that look complete are whole,
 * and another life goes on from there.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/accel_ckpt.h"
#include "tests/faults/saves_world.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/unit/power_model.h"

enum { ROWS = 20, STEPS = 4, SECONDS = 60 };

static char lost_dir[320], lost_root[400];
static long moments, wrong;

/* ---- the model watches one thread at a time ---------------------------------------- */

static atomic_bool deleting;

accel_status_t __real_accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                              const accel_ckpt_coll_t *coll,
                                              accel_ckpt_stats_t *stats_out,
                                              accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save_publish(accel_ckpt_saving_t *g,
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
void __wrap_accel_ckpt_save_retain(accel_ckpt_saving_t *g);
void __wrap_accel_ckpt_save_retain(accel_ckpt_saving_t *g)
{
    __real_accel_ckpt_save_retain(g);
    deleting = false;
}

accel_status_t __real_accel_ckpt_save(const accel_ckpt_save_t *s,
                                      const accel_ckpt_coll_t *coll,
                                      accel_ckpt_stats_t *stats_out,
                                      accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save(const accel_ckpt_save_t *s,
                                      const accel_ckpt_coll_t *coll,
                                      accel_ckpt_stats_t *stats_out,
                                      accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save(const accel_ckpt_save_t *s,
                                      const accel_ckpt_coll_t *coll,
                                      accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    while (deleting)
        sched_yield();
    return __real_accel_ckpt_save(s, coll, stats_out, err);
}

static accel_status_t await_write(int rank, accel_t *run, accel_error_t *err)
{
    (void)rank;
    (void)err;
    while (background_writes(&run->background))
        sched_yield();
    return ACCEL_OK;
}

/* ---- the power goes -------------------------------------------------------------- */

static int power_goes(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, "open") == 0 || strcmp(call, "openat") == 0)
        return 0; /* changes nothing */
    moments++;
    for (int mix = 0; mix < POWER_MIXES; mix++) {
        int64_t got;

        power_lose(mix);
        got = access(lost_root, F_OK) == 0 ? saves_newest(lost_root, ROWS) : -1;
        if (got < saves_said->saved && wrong++ < 5)
            tap_diag("before %s(%s), mix %d: %lld, but %lld was saved", call, name, mix,
                     (long long)got, (long long)saves_said->saved);
    }
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
    next.after = NULL;
    next.steps = STEPS + 2;
    tap_is_int(saves_live(&next, SECONDS), 0, "%s, mix %d: another life", mode, mix);
    tap_is_int(saves_said->begun, STEPS, "goes on");
    tap_is_int(saves_newest(saves_root, ROWS), STEPS + 2, "and saves");
    saves_use(kept);
}

static void test_mode(bool background)
{
    const char *mode = background ? "in the background" : "at once";
    const struct saves_life life = { .ranks = 1,
                                     .steps = STEPS,
                                     .rows = ROWS,
                                     .background = background,
                                     .keep = 1,
                                     .ready = from_now,
                                     .after = await_write };
    accel_error_t err = { 0 };
    accel_status_t st;

    moments = wrong = 0;
    st = saves_live_here(&life, &err);
    disk_hook = NULL;
    tap_is_int(st, ACCEL_OK, "%s: %s %s", mode, err.where, err.text);
    tap_is_int(wrong, 0, "at each of its %ld moments what was saved is there", moments);
    tap_ok(moments > 60, "the model saw its calls");
    tap_is_int(saves_newest(saves_root, ROWS), STEPS, "the last one is there");
    for (int mix = 0; mix < POWER_MIXES; mix++)
        goes_on(&life, mix, mode);
    saves_forget();
}

int main(void)
{
    char dir[330];
    int live;

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
    test_mode(false);
    test_mode(true);
    power_end();
    return tap_done();
}
