/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of runs that save to the nodes first; see staging_world.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/save/staging.h"
#include "state/save/background.h"
#include "checkpoint/accel_ckpt.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/loader_world.h"
#include "tests/world/number_run.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"
#include "tests/world/staging_world.h"

char staging_root[] = "/tmp/accel-staging.XXXXXX";
static char nodes[sizeof(staging_root) + 40]; /* the disks of the nodes */
bool apart;
int moved_rank = -1;
bool other_disk;
const char *local_dir;

/* ---- the gate -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
bool join_opens;   /* the wait for one lets it go */
bool join_removes; /* ... lets that one remove */
bool kill_written; /* the next write ends the process behind it */

static accel_status_t write_and_die(accel_ckpt_saving_t *g, accel_error_t *err)
{
    const accel_status_t st = __real_accel_ckpt_save_write(g, err);

    if (kill_written)
        raise(SIGKILL);
    return st;
}

static bool removal_held;
static pthread_t remover;
atomic_int removals;

/* Other threads than the training's do not remove files of shards yet. */
static int wait_to_remove(const char *call, const char *name, int fd)
{
    (void)fd;
    if (strcmp(call, "unlinkat") != 0 || strncmp(name, "rank_", 5) != 0 || is_trainer())
        return 0;
    pthread_mutex_lock(&lock);
    remover = pthread_self();
    atomic_fetch_add(&removals, 1);
    while (removal_held)
        pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

void hold_removal(bool hold)
{
    pthread_mutex_lock(&lock);
    removal_held = hold;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
    disk_hook = hold ? wait_to_remove : NULL;
}

int __real_pthread_join(pthread_t thread, void **value);
int __wrap_pthread_join(pthread_t thread, void **value);
int __wrap_pthread_join(pthread_t thread, void **value)
{
    if (join_opens && is_trainer())
        gate(false);
    if (join_removes && pthread_equal(thread, remover))
        hold_removal(false);
    return __real_pthread_join(thread, value);
}

/* ---- runs ------------------------------------------------------------------------ */

bool has_said(const struct boot *b, const char *text)
{
    return b->rank != 0 || strstr(said, text);
}

/* The disk of this rank's node. */
void node_dir(int rank, char *buf, size_t len)
{
    const bool other = moved_rank >= 0 && (!apart || rank == moved_rank);

    snprintf(buf, len, "%s/%s%d", nodes, other ? "other" : "node", apart ? rank : 0);
}

static char node_name[30];

void __wrap_ckpt_node_name(char name_out[65]);
void __wrap_ckpt_node_name(char name_out[65])
{
    snprintf(name_out, 65, "%s", node_name);
}

/* The config is the same on all ranks; what a path leads to is the node's. */
accel_status_t __real_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err)
{
    const int rank = run->boot.rank;
    const bool other = moved_rank >= 0 && (!apart || rank == moved_rank) && !other_disk;
    char *dir = run->config.ckpt_local_dir;

    snprintf(node_name, sizeof(node_name), "%s%d", other ? "other" : "node",
             apart ? rank : 0);
    if (local_dir)
        snprintf(dir, sizeof(run->config.ckpt_local_dir), "%s", local_dir);
    else
        node_dir(run->boot.rank, dir, sizeof(run->config.ckpt_local_dir));
    return __real_staging_open(run, err);
}

/* Until this rank has copied; no rank looks before all have. */
void await_copy(struct number_run *k)
{
    while (background_writes(&k->run->staging.drain))
        sched_yield();
    accel_barrier(k->run, &k->err);
}

/* The newest record of a staged one, and how many there are. */
int64_t staged(size_t *count_out)
{
    accel_ckpt_staged_t *list = NULL;
    char dir[sizeof(out_dir) + 20];
    int64_t at = -1;

    *count_out = 0;
    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    if (!accel_ckpt_list_staged(dir, &list, count_out, NULL) && *count_out > 0)
        at = list[0].step;
    free(list);
    return at;
}

/* Walks to the directories of the parts on this rank's node; their number. found (NULL:
 * not): called with each. */
int parts(int rank, void (*found)(const char *dir))
{
    char node[sizeof(nodes) + 20], home[400];
    struct dirent *e;
    DIR *d;
    int n = 0;

    node_dir(rank, node, sizeof(node));
    home[0] = '\0';
    d = opendir(node);
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "accel-", 6) == 0)
            snprintf(home, sizeof(home), "%s/%.60s", node, e->d_name);
    if (d)
        closedir(d);
    d = home[0] ? opendir(home) : NULL;
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "step_", 5) == 0) {
            char dir[500];

            snprintf(dir, sizeof(dir), "%s/%.90s", home, e->d_name);
            if (found)
                found(dir);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

int parts_left(struct number_run *k)
{
    staging_settle(k->run);
    return parts(k->run->boot.rank, NULL);
}

/* A life that was killed leaves what it had. */
void die(struct number_run *k)
{
    accel_barrier(k->run, &k->err);
    usleep(50000); /* the last message of the barrier is out */
    raise(SIGKILL);
}

struct find {
    int64_t step;
    const char *text;
};

/* The next life: where it begins, with the weight of that step. */
static int finds(struct boot *b, void *arg)
{
    const struct find *f = arg;
    struct number_run k;
    size_t n;

    gate(false);
    EXPECT(!begin(&k, 100), "prepare: %s", k.err.text);
    EXPECT(accel_steps_done(k.run) == f->step, "resumed from %lld: %s",
           (long long)accel_steps_done(k.run), said);
    EXPECT(f->step == 0 || newest() == f->step, "which the shared directory has");
    EXPECT(staged(&n) == -1 && n == 0, "no record is left");
    accel_barrier(k.run, &k.err);
    EXPECT(local_dir || parts(b->rank, NULL) == 0, "and nothing on the node");
    EXPECT(!f->text || has_said(b, f->text), "said: %s", said);
    number_begin(&k);
    EXPECT(number_of(&k, k.a) == (float)(START - f->step), "its weight: %g",
           (double)number_of(&k, k.a));
    accel_close(k.run, NULL);
    return 0;
}

int dies_between(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 3), "steps: %s", k.err.text);
    die(&k);
    return 1;
}

int dies_later(struct boot *b, void *arg)
{
    struct number_run k;

    (void)b;
    (void)arg;
    gate(false);
    EXPECT(!begin(&k, 100) && !steps(&k, 2), "steps: %s", k.err.text);
    await_copy(&k);
    EXPECT(!step(&k) && newest() == 2, "step 2 is shared: %s", said);
    accel_barrier(k.run, &k.err);
    gate(true);
    EXPECT(!step(&k), "step 4: %s", k.err.text);
    die(&k);
    return 1;
}

int dies_with_two(struct boot *b, void *arg)
{
    struct number_run k;
    size_t n;

    (void)b;
    (void)arg;
    gate(true);
    EXPECT(!begin(&k, 100) && !steps(&k, 5), "steps: %s", k.err.text);
    EXPECT(staged(&n) == 4 && n == 2, "steps 4 and 2 (%zu)", n);
    die(&k);
    return 1;
}

static int fail_with;
static const char *fail_call, *fail_name;

/* Is the directory fd one of the test's? The path of the program itself may have a part
 * with the same name. */
static bool is_ours(int fd)
{
    char link[40], path[900];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, strrchr(staging_root, '/')) != NULL;
}

static int strike(const char *call, const char *name, int fd)
{
    return fail_with && strcmp(call, fail_call) == 0 &&
                   strncmp(name, fail_name, strlen(fail_name)) == 0 && is_ours(fd)
               ? fail_with
               : 0;
}

void fail(const char *call, const char *name, int error)
{
    fail_call = call;
    fail_name = name;
    fail_with = error;
    disk_hook = error ? strike : NULL;
}

/* ---- lives ---------------------------------------------------------------------- */

void new_case(int world, const char *name, const char *more)
{
    char keys[512];

    snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", staging_root, name, world);
    snprintf(nodes, sizeof(nodes), "%s/%s-%d.nodes", staging_root, name, world);
    snprintf(keys, sizeof(keys), "    keep: 2\n%s%s",
             strstr(more, "async") ? "" : "    async: false\n", more);
    held_config(world, keys);
    moved_rank = -1;
    other_disk = false;
}

void life(int world, const char *what, int (*fn)(struct boot *, void *), void *arg,
          int status)
{
    tap_is_int(open_world(world, apart ? world : 1, fn, arg, HANG_S), status,
               "%s on %d ranks%s", what, world, apart ? ", a node each" : "");
}

void life_finds(int world, const char *what, int64_t want, const char *text)
{
    life(world, what, finds, &(struct find){ want, text }, 0);
}

void staging_world_begin(void)
{
    unsetenv("SLURM_JOB_ID");
    trainer_passes = true;
    held_write = write_and_die;
    run_folder_new(staging_root);
    snprintf(config, sizeof(config), "%s/a.yaml", staging_root);
}

void staging_world_end(void)
{
    run_folder_remove(staging_root);
}
