/* SPDX-License-Identifier: Apache-2.0
 *
 * save_steady [SAVES]: memory, descriptors and threads of a run that saves every step,
 * at once and in the background, do not grow with the saves (80 of each); and the memory
 * that a snapshot has is hardly more than what it holds.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "state/save/background.h"
#include "tests/faults/saves_world.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

/* 1.6 MB of weights; what a run has after some saves is what it needs */
enum { ROWS = 10000, COLS = 40, WARM = 30, SECONDS = 500 };
/* The least of so many looks counts: at one of them a thread may be about to end. */
enum { LOOKS = 5 };

struct usage {
    long pages, descriptors, threads;
};

/* shared with the rank: when warm, at the end, and the snapshot's memory */
static struct {
    struct usage warm, end;
    size_t pool;
} * seen;
static int64_t last;

static long entries(const char *dir)
{
    DIR *d = opendir(dir);
    long n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static struct usage usage_now(void)
{
    struct usage u = { .descriptors = entries("/proc/self/fd"),
                       .threads = entries("/proc/self/task") };
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%*d %ld", &u.pages) != 1)
        u.pages = -1;
    if (f)
        fclose(f);
    return u;
}

static void take_least(struct usage *least, bool first)
{
    const struct usage u = usage_now();

    if (first)
        *least = u;
    least->pages = u.pages < least->pages ? u.pages : least->pages;
    least->descriptors =
        u.descriptors < least->descriptors ? u.descriptors : least->descriptors;
    least->threads = u.threads < least->threads ? u.threads : least->threads;
}

/* Looks while nothing is written or deleted: threads of a save are no growth. */
static accel_status_t look(int rank, accel_t *run, accel_error_t *err)
{
    const int64_t step = accel_steps_done(run);

    (void)rank;
    (void)err;
    if ((step <= WARM - LOOKS || step > WARM) && (step < last - LOOKS || step == last))
        return ACCEL_OK;
    while (background_writes(&run->background))
        sched_yield();
    background_settle(&run->background);
    if (run->background.pool)
        seen->pool = run->background.pool_bytes;
    if (step <= WARM)
        take_least(&seen->warm, step == WARM - LOOKS + 1);
    else
        take_least(&seen->end, step == last - LOOKS);
    return ACCEL_OK;
}

static void test_mode(bool background, int saves)
{
    const char *mode = background ? "in the background" : "at once";
    const struct saves_life life = { .ranks = 1,
                                     .steps = last = WARM + saves + 1,
                                     .rows = ROWS,
                                     .background = background,
                                     .keep = 2,
                                     .after = look };
    const size_t bytes = sizeof(float) * ROWS * COLS;
    const long page = sysconf(_SC_PAGESIZE);

    saves_forget();
    tap_is_int(saves_live(&life, SECONDS), 0, "%s: %d saves", mode, saves);
    tap_ok(seen->warm.pages > 0 &&
               (seen->end.pages - seen->warm.pages) * page < (long)bytes / 2,
           "%s: memory went from %ld to %ld KiB", mode, seen->warm.pages * page / 1024,
           seen->end.pages * page / 1024);
    tap_is_int(seen->end.descriptors, seen->warm.descriptors, "%s: descriptors", mode);
    tap_is_int(seen->end.threads, seen->warm.threads, "%s: threads", mode);
    if (background)
        tap_ok(seen->pool >= bytes && seen->pool * 100 <= bytes * 102,
               "a snapshot of %zu bytes has %zu", bytes, seen->pool);
}

int main(int argc, char **argv)
{
    const int saves = argc > 1 ? atoi(argv[1]) : 80;

    if (!saves_new())
        tap_skip_all("no directory for temporary files");
    seen = fork_shared(sizeof(*seen));
    test_mode(false, saves);
    test_mode(true, saves);
    saves_end();
    return tap_done();
}
