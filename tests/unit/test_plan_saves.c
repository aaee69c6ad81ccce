/* SPDX-License-Identifier: Apache-2.0
 *
 * What saves take, as planned: memory of rank 0 while it writes one file for all ranks,
 * memory of a copy from the nodes, and bytes on the disk of a node.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/save/staging.h"
#include "state/save/save.h"
#include "checkpoint/accel_ckpt.h"
#include "common/ckpt_sizes.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { RANKS = 2 };
/* Smaller blocks are records, no buffers; the one that pieces are hashed in is 1 MiB. */
#define LARGE ((size_t)2 << 20)

static char root[64] = "/tmp/accel-saves.XXXXXX";

/* ---- what is asked for ----------------------------------------------------------- */

/* Bytes that are held, and the most at a time. */
struct held {
    int64_t now, most;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held heap, staging;
static bool counts;
/* large blocks from malloc, and their sizes */
static struct {
    void *at;
    size_t bytes;
} block[16];

static void hold(struct held *h, int64_t bytes)
{
    h->now += bytes;
    h->most = h->now > h->most ? h->now : h->most;
}

static void begin_to_count(void)
{
    memset(block, 0, sizeof(block));
    heap = staging = (struct held){ 0 };
    counts = true;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    void *p = __real_malloc(bytes);

    if (!counts || !p || bytes < LARGE)
        return p;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(block); i++)
        if (!block[i].at) {
            block[i].at = p;
            block[i].bytes = bytes;
            hold(&heap, (int64_t)bytes);
            break;
        }
    pthread_mutex_unlock(&lock);
    return p;
}

void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p)
{
    if (counts && p) {
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(block); i++)
            if (block[i].at == p) {
                block[i].at = NULL;
                hold(&heap, -(int64_t)block[i].bytes);
            }
        pthread_mutex_unlock(&lock);
    }
    __real_free(p);
}

void *__real_ckpt_stage_map(size_t bytes);
void *__wrap_ckpt_stage_map(size_t bytes);
void *__wrap_ckpt_stage_map(size_t bytes)
{
    pthread_mutex_lock(&lock);
    hold(&staging, (int64_t)ckpt_stage_bytes(bytes));
    pthread_mutex_unlock(&lock);
    return __real_ckpt_stage_map(bytes);
}

void __real_ckpt_stage_unmap(void *p, size_t bytes);
void __wrap_ckpt_stage_unmap(void *p, size_t bytes);
void __wrap_ckpt_stage_unmap(void *p, size_t bytes)
{
    pthread_mutex_lock(&lock);
    hold(&staging, p ? -(int64_t)ckpt_stage_bytes(bytes) : 0);
    pthread_mutex_unlock(&lock);
    __real_ckpt_stage_unmap(p, bytes);
}

/* ---- runs ------------------------------------------------------------------------ */

struct scene {
    char path[128]; /* of the run; its config is PATH.yaml */
    int nodes;
    bool large;
};

/* With enough words one tensor is larger than a round; SGD without momentum has no state. */
static accel_status_t open_run(const struct scene *c, int vocab, accel_t **run_out,
                               accel_error_t *err)
{
    const accel_model_config_t llama = { .bytes = sizeof(accel_model_config_t),
                                         .model_type = "llama",
                                         .layers = 1,
                                         .heads = 2,
                                         .width = 60,
                                         .hidden = 96,
                                         .context = 8,
                                         .vocab = vocab,
                                         .tied = 1 };
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = 1, .seed = 1 };
    char config[192];
    accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_module_t *model;

    snprintf(config, sizeof(config), "%s.yaml", c->path);
    loop.out_dir = c->path;
    if (accel_open(run_out, &o, err))
        return err->code;
    model = accel_model_new(*run_out, &llama, err);
    if (!model || accel_model_add(*run_out, "", model, err) ||
        !accel_optim_add(*run_out, "o", &model, 1, &sgd, err))
        return err->code;
    return accel_prepare_all(*run_out, &loop, err);
}

/* With a tensor that is larger than a round, or without. */
static int one_file(struct boot *b, void *arg)
{
    const struct scene *c = arg;
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    int64_t planned, had;

    EXPECT(!open_run(c, c->large ? 150000 : 20000, &run, &err), "prepare: %s",
           err.text);
    planned = run->plan.round_bytes;
    begin_to_count();
    EXPECT(!accel_save(run, &err), "save: %s", err.text);
    counts = false;
    had = heap.most - c->large; /* comm_gather has a byte of its own */
    EXPECT(!c->large || planned > 3 * (int64_t)CKPT_ROUND_BYTES, "a large tensor");
    EXPECT(c->large ? b->rank != 0 || had == planned : had >= (int64_t)CKPT_ROUND_BYTES,
           "%lld bytes, planned were %lld", (long long)had, (long long)planned);
    EXPECT(had <= planned, "no rank has more");
    accel_close(run, NULL);
    return 0;
}

/* Bytes of tensors in the files [first, end) by a MANIFEST. */
static int64_t tensor_bytes(const char *path, int first, int end)
{
    char line[2048];
    FILE *f = fopen(path, "r");
    bool tensor = false;
    int64_t sum = 0;

    while (f && fgets(line, sizeof(line), f)) {
        long long bytes;
        int file;

        if (line[0] != 'B' && line[0] != 'C')
            tensor = line[0] == 'T';
        if (tensor && sscanf(line, "B %*s %*s %d %*s %lld", &file, &bytes) == 2 &&
            file >= first && file < end)
            sum += bytes;
    }
    if (f)
        fclose(f);
    return sum;
}

static int from_nodes(struct boot *b, void *arg)
{
    const struct scene *c = arg;
    const int local = RANKS / c->nodes;
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    char path[sizeof(run->ckpt_dir) + 300];
    int64_t most = 0;

    EXPECT(!open_run(c, 3001, &run, &err), "prepare: %s", err.text);
    EXPECT(!save_staged(run, &err), "to the nodes: %s", err.text);
    snprintf(path, sizeof(path), "%s/%s/MANIFEST", run->ckpt_dir,
             run->staging.held[0].name);
    for (int r = 0; r < RANKS; r += local) {
        const int64_t bytes = tensor_bytes(path, r, r + local);

        most = bytes > most ? bytes : most;
    }
    EXPECT(most > 0 && most == run->plan.staged_bytes,
           "%lld bytes on a node, planned were %lld", (long long)most,
           (long long)run->plan.staged_bytes);
    staging = (struct held){ 0 };
    EXPECT(!staging_finish(run, &err), "copied: %s", err.text);
    EXPECT(staging.most == run->plan.drain_bytes,
           "the copy had %lld bytes, planned were %lld", (long long)staging.most,
           (long long)run->plan.drain_bytes);
    EXPECT(b->rank != 0 || run->plan.total_bytes > run->plan.drain_bytes,
           "which are a part of all");
    accel_close(run, NULL);
    return 0;
}

/* A run of its own folder. `rest`: of the strategy's section; `more`: as in
 * run_net_config. */
static void life(const char *what, int nodes, const char *strategy, const char *rest,
                 const char *more, int (*fn)(struct boot *, void *))
{
    struct scene c = { .nodes = nodes, .large = !strcmp(what, "large") };
    char section[128];

    snprintf(c.path, sizeof(c.path), "%s/%s-%s-%d", root, what, strategy, nodes);
    snprintf(section, sizeof(section), "%s%s", strategy, rest);
    run_net_config(c.path, section, RANKS, nodes, more);
    tap_is_int(open_world(RANKS, nodes, fn, &c, HANG_S), 0, "%s, %s, %d nodes", what,
               strategy, nodes);
}

int main(void)
{
    static const char one[] = "\n  fsdp_state_dict_type: FULL_STATE_DICT";
    char more[512];

    unsetenv("SLURM_JOB_ID");
    run_folder_new(root);
    life("large", 1, "FULL_SHARD", one, NULL, one_file);
    life("small", 1, "FULL_SHARD", one, NULL, one_file);
    snprintf(more, sizeof(more),
             "mixed_precision: 'no'\naccel:\n  checkpoint:\n    local_dir: %s/disk\n",
             root);
    for (int nodes = 1; nodes <= 2; nodes++) {
        life("staged", nodes, "FULL_SHARD", "", more, from_nodes);
        life("staged", nodes, "NO_SHARD", "", more, from_nodes);
    }
    run_folder_remove(root);
    return tap_done();
}
