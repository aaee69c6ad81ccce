/* SPDX-License-Identifier: Apache-2.0
 *
 * Random calls of the public interface, right and wrong, in any order: none crashes,
 * leaks or hangs, none that cannot be meant succeeds, and each error has its text. A
 * world is one run, or two of one process, from accel_open to accel_close; the calls of
 * a world follow from its number.
 *     fuzz_calls [-n CALLS] [-r RANKS] [-s FIRST_WORLD] [-w ONE_WORLD] [-t]
 * With several ranks all make the same calls, and each call must end the same way on
 * all; local ones may differ. Without -r: that many calls of one rank, and a quarter of
 * them of two. -t shows each call before it is made.
 */
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env_names.h"
#include "tests/fuzz/calls_world.h"
#include "tests/tap.h"
#include "tests/world/open_world.h"

enum { MOST_RANKS = 4, WORLD_CALLS = 150, WORLD_SECONDS = 60 };

static struct options {
    long calls;
    uint64_t first, only;
    int ranks;
    bool trace;
} options = { .calls = 600, .first = 1 };

static char root[128];

/* What the ranks of a world share. */
struct shared {
    short outcome[MOST_RANKS][CALLS_OUTCOMES];
    long calls[MOST_RANKS], findings[MOST_RANKS];
};

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *at)
{
    (void)sb, (void)type, (void)at;
    return remove(path);
}

static void remove_dir(const char *dir)
{
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        tap_diag("%s is left", dir);
}

static bool write_config(const char *dir, const char *name, const char *more)
{
    char path[192];
    bool good;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    if (!f)
        return false;
    good = fprintf(f,
                   "distributed_type: %s\nuse_cpu: true\n%s"
                   "accel:\n  checkpoint:\n    keep: 2\n    save: false\n",
                   options.ranks > 1 ? "MULTI_CPU" : "'NO'", more) > 0;
    return fclose(f) == 0 && good;
}

/* All calls of one world, on one rank. */
static void play(struct world *w, uint64_t number, const char *dir)
{
    long until;

    w->random = number * 0x9e3779b97f4a7c15u + 1;
    w->own = w->random + (uint64_t)w->rank;
    for (int i = 0; i < 8; i++)
        calls_random(w, 2);
    w->dir = dir;
    w->now = &w->side[0];
    calls_now = w;
    alarm(WORLD_SECONDS);
    until = w->calls + (long)(5 + calls_random(w, WORLD_CALLS));
    calls_open(w);
    for (uint64_t n = calls_once_in(w, 2) ? calls_random(w, 8) : 0; n > 0; n--)
        calls_any(w);
    w->now = &w->side[0];
    if (calls_random(w, 8))
        calls_set_up(w);
    while (w->calls < until) {
        calls_any(w);
        w->now = &w->side[0];
        /* a run that has failed refuses what follows */
        if (!accel_more(w->now->run) && w->now->prepared && calls_once_in(w, 10))
            break;
    }
    for (int i = CALLS_SIDES - 1; i >= 0; i--) {
        w->now = &w->side[i];
        calls_close(w);
    }
    alarm(0);
}

/* ---- worlds ---------------------------------------------------------------------- */

static bool make_dir(char *dir, size_t len, uint64_t number)
{
    snprintf(dir, len, "%s/%llu", root, (unsigned long long)number);
    return mkdir(dir, 0700) == 0 && write_config(dir, "plain.yaml", "") &&
           write_config(dir, "debug.yaml", "debug: true\n");
}

static long play_alone(struct world *w, uint64_t number, const char *dir)
{
    long before = w->findings;

    play(w, number, dir);
    return w->findings - before;
}

/* What a forked rank plays. */
struct match {
    uint64_t number;
    const char *dir;
    struct shared *shared;
};

static int play_rank(struct boot *b, void *arg)
{
    const struct match *m = arg;
    struct world w = { .rank = b->rank,
                       .ranks = b->size,
                       .trace = options.trace,
                       .outcome = m->shared->outcome[b->rank] };

    open_world_join(b);
    play(&w, m->number, m->dir);
    m->shared->calls[b->rank] = w.calls;
    m->shared->findings[b->rank] = w.findings;
    return 0;
}

/* Each call must have ended the same way on all ranks. */
static long play_together(struct world *w, uint64_t number, const char *dir)
{
    static struct shared *shared;
    struct match m = { number, dir, NULL };
    long bad = 0;
    int rc;

    if (!shared)
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, sizeof(*shared));
    m.shared = shared;
    rc = fork_world(options.ranks, play_rank, &m, WORLD_SECONDS);
    if (rc) {
        tap_diag("a rank ended with %d", rc);
        bad++;
    }
    for (int r = 0; r < options.ranks; r++) {
        bad += shared->findings[r];
        if (shared->calls[r] != shared->calls[0])
            tap_diag("rank %d made %ld calls, not %ld", r, shared->calls[r],
                     shared->calls[0]);
        for (long i = 0; i < shared->calls[0] && i < CALLS_OUTCOMES; i++)
            if (shared->outcome[r][i] != shared->outcome[0][i]) {
                tap_diag("call %ld: %d on rank 0, %d on rank %d", i,
                         shared->outcome[0][i], shared->outcome[r][i], r);
                bad++;
                break;
            }
    }
    w->calls += shared->calls[0];
    w->findings += bad;
    return bad;
}

static void play_worlds(void)
{
    struct world w = { .ranks = 1, .trace = options.trace };
    uint64_t number = options.only ? options.only : options.first;
    char dir[160];

    do {
        if (!make_dir(dir, sizeof(dir), number))
            break;
        if (options.trace)
            fprintf(stderr, "# world %llu\n", (unsigned long long)number);
        if ((options.ranks > 1 ? play_together : play_alone)(&w, number, dir) > 0)
            tap_diag("see it with -r %d -w %llu -t", options.ranks,
                     (unsigned long long)number);
        remove_dir(dir);
        number++;
    } while (!options.only && w.calls < options.calls);
    tap_ok(w.calls > 0 && w.findings == 0,
           "%d ranks, %ld calls in %llu worlds: %ld findings", options.ranks, w.calls,
           (unsigned long long)(number - options.first), w.findings);
}

int main(int argc, char **argv)
{
    int opt;

    while ((opt = getopt(argc, argv, "n:r:s:w:t")) > 0)
        switch (opt) {
        case 'n':
            options.calls = atol(optarg);
            break;
        case 'r':
            options.ranks = atoi(optarg);
            break;
        case 's':
            options.first = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            options.only = strtoull(optarg, NULL, 10);
            break;
        case 't':
            options.trace = true;
            break;
        default:
            return 64;
        }
    unsetenv(ENV_RESOLVED);
    unsetenv(ENV_CONFIG);
    snprintf(root, sizeof(root), "%.100s/accel-calls-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root))
        tap_skip_all("no directory for temporary files");
    if (options.ranks) {
        play_worlds();
    } else {
        options.ranks = 1;
        play_worlds();
        options.ranks = 2;
        options.calls /= 4;
        play_worlds();
    }
    remove_dir(root);
    return tap_done();
}
