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

#include "checkpoint/accel_ckpt.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/unit/loader_world.h"
#include "tests/unit/number_run.h"
#include "tests/unit/open_world.h"
#include "tests/unit/run_folder.h"
#include "tests/unit/staging_world.h"

#define START 2 /* what the weight begins with */

char staging_root[] = "/tmp/accel-staging.XXXXXX";
char said[8192], out_dir[sizeof(staging_root) + 40];
static char config[sizeof(staging_root) + 20];
static char nodes[sizeof(staging_root) + 40]; /* the disks of the nodes */
bool apart;
int moved_rank = -1;
const char *local_dir;

/* ---- the gate -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool held;  /* threads that write wait */
bool join_opens;   /* the wait for one lets it go */
bool join_removes; /* ... lets that one remove */
bool kill_written; /* the next write ends the process behind it */
static pthread_t trains;

void gate(bool hold)
{
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

accel_status_t __real_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err)
{
    accel_status_t st;

    pthread_mutex_lock(&lock);
    while (held && !pthread_equal(pthread_self(), trains))
        pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
    st = __real_accel_ckpt_save_write(g, err);
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
    if (strcmp(call, "unlinkat") != 0 || strncmp(name, "rank_", 5) != 0 ||
        pthread_equal(pthread_self(), trains))
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
    if (join_opens && pthread_equal(pthread_self(), trains))
        gate(false);
    if (join_removes && pthread_equal(thread, remover))
        hold_removal(false);
    return __real_pthread_join(thread, value);
}

/* ---- runs ------------------------------------------------------------------------ */

static void log_line(void *user, accel_log_level_t level, const char *line)
{
    const size_t used = strlen(said);

    (void)user;
    (void)level;
    if (strstr(line, "checkpoint") || strstr(line, "received") || strstr(line, "lost"))
        snprintf(said + used, sizeof(said) - used, "%s\n", line);
}

bool has_said(const struct boot *b, const char *text)
{
    return b->rank != 0 || strstr(said, text);
}

static void write_config(int world, const char *more)
{
    FILE *f;

    number_config(config, world, 1, "FULL_SHARD", true);
    f = fopen(config, "a");
    fprintf(f, "    every_steps: 2\n    every_minutes: 0\n    keep: 2\n%s", more);
    fclose(f);
}

/* The disk of this rank's node. */
static void node_dir(int rank, char *buf, size_t len)
{
    const bool other = moved_rank >= 0 && (!apart || rank == moved_rank);

    snprintf(buf, len, "%s/%s%d", nodes, other ? "other" : "node", apart ? rank : 0);
}

/* The config is the same on all ranks; what a path leads to is the node's. */
accel_status_t __real_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err);
accel_status_t __wrap_staging_open(accel_t *run, accel_error_t *err)
{
    char *dir = run->config.ckpt_local_dir;

    if (local_dir)
        snprintf(dir, sizeof(run->config.ckpt_local_dir), "%s", local_dir);
    else
        node_dir(run->boot.rank, dir, sizeof(run->config.ckpt_local_dir));
    return __real_staging_open(run, err);
}

accel_status_t begin(struct number_run *k, int64_t steps)
{
    const accel_optimizer_t sgd = { .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { .steps = steps, .batch = 1, .out_dir = out_dir };

    trains = pthread_self();
    said[0] = '\0';
    if (number_models(k, config))
        return k->err.code;
    k->run->log.fn = log_line;
    if (accel_model_add(k->run, "a", k->a, &k->err))
        return k->err.code;
    k->oa = accel_optim_add(k->run, "oa", &k->a, 1, &sgd, &k->err);
    return k->oa ? accel_prepare_all(k->run, &loop, &k->err) : k->err.code;
}

accel_status_t step(struct number_run *k)
{
    accel_status_t st = number_micro(k, k->a, 1);

    return st ? st : accel_step(k->run, &k->err);
}

accel_status_t steps(struct number_run *k, int n)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < n && st == ACCEL_OK; i++)
        st = step(k);
    return st;
}

/* Until this rank has copied; no rank looks before all have. */
void await_copy(struct number_run *k)
{
    while (background_writes(&k->run->staging.drain))
        sched_yield();
    accel_barrier(k->run, &k->err);
}

/* The newest complete checkpoint in the shared directory; -1. */
int64_t newest(void)
{
    accel_ckpt_info_t *list = NULL;
    char dir[sizeof(out_dir) + 20];
    int64_t at = -1;
    size_t n = 0;

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    if (!accel_ckpt_list(dir, &list, &n, NULL))
        for (size_t i = 0; i < n && at < 0; i++)
            at = list[i].complete ? list[i].step : -1;
    free(list);
    return at;
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

/* The next life: where it begins, with the weight of that step. */
int finds_with(struct boot *b, int64_t want, const char *text)
{
    struct number_run k;
    size_t n;

    gate(false);
    EXPECT(!begin(&k, 100), "prepare: %s", k.err.text);
    EXPECT(accel_steps_done(k.run) == want, "resumed from %lld: %s",
           (long long)accel_steps_done(k.run), said);
    EXPECT(want == 0 || newest() == want, "which the shared directory has");
    EXPECT(staged(&n) == -1 && n == 0, "no record is left");
    accel_barrier(k.run, &k.err);
    EXPECT(local_dir || parts(b->rank, NULL) == 0, "and nothing on the node");
    EXPECT(!text || has_said(b, text), "said: %s", said);
    number_begin(&k);
    EXPECT(number_of(&k, k.a) == (float)(START - want), "its weight: %g",
           (double)number_of(&k, k.a));
    accel_close(k.run, NULL);
    return 0;
}

static int fail_with;
static const char *fail_call, *fail_name;

static int strike(const char *call, const char *name, int fd)
{
    (void)fd;
    return fail_with && strcmp(call, fail_call) == 0 && strncmp(name, fail_name, 5) == 0
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
    snprintf(out_dir, sizeof(out_dir), "%s/%s-%d", staging_root, name, world);
    snprintf(nodes, sizeof(nodes), "%s/%s-%d.nodes", staging_root, name, world);
    write_config(world, more);
    moved_rank = -1;
}

void life(int world, const char *what, int (*fn)(struct boot *, void *), void *arg,
          int status)
{
    tap_is_int(open_world(world, apart ? world : 1, fn, arg, 60), status,
               "%s on %d ranks%s", what, world, apart ? ", a node each" : "");
}

void staging_world_begin(void)
{
    unsetenv("SLURM_JOB_ID");
    run_folder_new(staging_root);
    snprintf(config, sizeof(config), "%s/a.yaml", staging_root);
}

void staging_world_end(void)
{
    run_folder_remove(staging_root);
}
