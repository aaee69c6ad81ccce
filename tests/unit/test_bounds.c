/* SPDX-License-Identifier: Apache-2.0
 *
 * How many, how long, how large: what the public calls take at most. Each bound is
 * accepted, the number behind it is refused with the words of the documentation, and one
 * before it is accepted, too.
 */
#include <stdio.h>
#include <string.h>

#include "accel_ckpt.h"
#include "tests/tap.h"
#include "tests/world/number_run.h"
#include "tests/world/run_folder.h"

static char root[64] = "/tmp/accel-bounds-XXXXXX";
static char config[96];

/* Which number of several that one function asks for. */
enum number {
    ITSELF,
    LETTERS,
    SAVE_HOOKS,
    LOAD_HOOKS,
    GRADIENT_HOOKS,
    SINKS,
    SAMPLES,
    FIELDS,
    BYTES,
    DIMS,
    AHEAD,
    THREADS,
    EPOCH,
    SKIPPED,
    RUN_ID,
    OWNER,
    SHARDING
};
static enum number asked; /* of the row */

/* n letters. */
static const char *word(int64_t n)
{
    static char text[2048];

    memset(text, 'x', sizeof(text));
    text[n] = '\0';
    return text;
}

/* ---- of a run before accel_prepare ----------------------------------------------- */

static accel_status_t put_nothing(void *user, accel_bytes_t *to, accel_error_t *err)
{
    (void)user;
    (void)to;
    (void)err;
    return ACCEL_OK;
}

static accel_status_t take_nothing(void *user, const accel_saved_t *from,
                                   accel_error_t *err)
{
    (void)user;
    (void)from;
    (void)err;
    return ACCEL_OK;
}

static accel_status_t no_hook(void *user, const char *where, accel_error_t *err)
{
    (void)user;
    (void)where;
    (void)err;
    return ACCEL_OK;
}

static void no_gradient(void *user, const char *name, float *g, int64_t first,
                        int64_t count)
{
    (void)user;
    (void)name;
    (void)g;
    (void)first;
    (void)count;
}

static accel_status_t no_write(void *user, int64_t step, double time,
                               const accel_item_t *items, int n, accel_error_t *err)
{
    (void)user;
    (void)step;
    (void)time;
    (void)items;
    (void)n;
    (void)err;
    return ACCEL_OK;
}

static void no_update(void *user, const accel_piece_t *piece)
{
    (void)user;
    (void)piece;
}

static accel_status_t object(accel_t *run, const char *name, accel_error_t *err)
{
    return accel_register(run, name, 1, ACCEL_STATE_PER_RANK, put_nothing, take_nothing,
                          NULL, err);
}

static accel_status_t objects(struct number_run *k, int64_t n, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < n && !st; i++) {
        char name[16];

        snprintf(name, sizeof(name), "o%d", i);
        st = object(k->run, name, err);
    }
    return st;
}

static accel_status_t object_name(struct number_run *k, int64_t n, accel_error_t *err)
{
    return object(k->run, word(n), err);
}

static accel_status_t hook(accel_t *run, accel_error_t *err)
{
    const accel_sink_t sink = { sizeof(sink), .name = "s", .write = no_write };

    if (asked == SAVE_HOOKS)
        return accel_on_save(run, no_hook, NULL, err);
    if (asked == LOAD_HOOKS)
        return accel_on_load(run, no_hook, NULL, err);
    if (asked == GRADIENT_HOOKS)
        return accel_on_gradient(run, "a.*", no_gradient, NULL, err);
    return accel_track_sink(run, &sink, err);
}

static accel_status_t hooks(struct number_run *k, int64_t n, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < n && !st; i++)
        st = hook(k->run, err);
    return st;
}

/* The run has two. */
static accel_status_t trees(struct number_run *k, int64_t n, accel_error_t *err)
{
    for (int i = 2; i < n; i++)
        if (!accel_module_new(k->run, k->a->cls, NULL, NULL)) {
            *err = k->run->graph.error;
            return err->code;
        }
    return ACCEL_OK;
}

static accel_status_t model_name(struct number_run *k, int64_t n, accel_error_t *err)
{
    return accel_model_add(k->run, word(n), k->a, err);
}

static accel_status_t optims(struct number_run *k, int64_t n, accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };

    for (int i = 0; i < n; i++) {
        accel_module_t *m = accel_module_new(k->run, k->a->cls, NULL, NULL);
        char name[16];

        snprintf(name, sizeof(name), "m%d", i);
        if (accel_model_add(k->run, name, m, err) ||
            !accel_optim_add(k->run, name, &m, 1, &sgd, err))
            return err->code;
    }
    return ACCEL_OK;
}

static accel_status_t optim_name(struct number_run *k, int64_t n, accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };

    accel_model_add(k->run, "a", k->a, err);
    return accel_optim_add(k->run, word(n), &k->a, 1, &sgd, err) ? ACCEL_OK : err->code;
}

static accel_status_t own_states(struct number_run *k, int64_t n, accel_error_t *err)
{
    static const char *const state[] = { "s0", "s1", "s2", "s3", "s4", "s5" };
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_own_optim_t own = { sizeof(own), no_update, NULL, state, (int)n };

    accel_model_add(k->run, "a", k->a, err);
    return accel_optim_add_own(k->run, "o", &k->a, 1, &sgd, &own, err) ? ACCEL_OK
                                                                       : err->code;
}

/* ---- of a loop ------------------------------------------------------------------- */

static accel_status_t with_loop(struct number_run *k, int batch, int accumulate,
                                accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = 1, .batch = batch,
                                .accumulate = accumulate, .out_dir = root };

    accel_model_add(k->run, "a", k->a, err);
    accel_optim_add(k->run, "o", &k->a, 1, &sgd, err);
    return accel_prepare_all(k->run, &loop, err);
}

static accel_status_t loop_batch(struct number_run *k, int64_t n, accel_error_t *err)
{
    return with_loop(k, (int)n, 1, err);
}

static accel_status_t loop_group(struct number_run *k, int64_t n, accel_error_t *err)
{
    return with_loop(k, 1, (int)n, err);
}

static accel_status_t new_group(struct number_run *k, int64_t n, accel_error_t *err)
{
    const accel_status_t st = with_loop(k, 1, 1, err);

    return st ? st : accel_accumulate(k->run, (int)n, err);
}

/* ---- of datasets and loaders ----------------------------------------------------- */

static int no_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    (void)index;
    (void)dst;
    return 0;
}

static accel_status_t dataset(struct number_run *k, int64_t n, accel_error_t *err)
{
    accel_field_t f[12] = { 0 };
    accel_dataset_t *d = NULL;
    accel_status_t st;

    (void)k;
    for (int i = 0; i < 12; i++)
        f[i].dtype = ACCEL_I8;
    if (asked == BYTES)
        f[0] = (accel_field_t){ ACCEL_I8, 1, { n } };
    else if (asked == DIMS)
        f[0] = (accel_field_t){ ACCEL_I8, (int)n, { 1, 1, 1 } };
    st = accel_dataset_new(&d, asked == SAMPLES ? n : 1, f,
                           asked == FIELDS ? (int)n : 1, no_fetch, NULL, 0, err);
    accel_dataset_close(d);
    return st;
}

/* Of eight fields together, of which seven have an eighth of what is allowed. */
static accel_status_t fields_bytes(struct number_run *k, int64_t n, accel_error_t *err)
{
    accel_dataset_t *d = NULL;
    accel_field_t f[8];
    accel_status_t st;

    (void)k;
    for (int i = 0; i < 8; i++)
        f[i] = (accel_field_t){ ACCEL_I8, 1, { INT64_C(1) << 28 } };
    f[7].dims[0] = n - 7 * (INT64_C(1) << 28);
    st = accel_dataset_new(&d, 1, f, 8, no_fetch, NULL, 0, err);
    accel_dataset_close(d);
    return st;
}

static accel_status_t loader(struct number_run *k, int64_t n, accel_error_t *err)
{
    const accel_loader_options_t o = { sizeof(o),
                                       .batch = asked == SAMPLES ? (int)n : 1,
                                       .prefetch =
                                           asked == AHEAD ? (int)n : asked == THREADS,
                                       .threads = asked == THREADS ? (int)n : 0 };
    const accel_field_t field = { .dtype = ACCEL_I32 };
    accel_dataset_t *d = NULL;
    accel_loader_t *l = NULL;
    accel_status_t st = accel_dataset_new(&d, 10, &field, 1, no_fetch, NULL, 0, err);

    ACCEL_TRY(st, accel_dataset_set_threads(d, 1024, err));
    ACCEL_TRY(
        st, accel_loader_new(&l, k->run, asked == LETTERS ? word(n) : "l", d, &o, err));
    if (asked == EPOCH)
        ACCEL_TRY(st, accel_loader_set_epoch(l, n, err));
    if (asked == SKIPPED)
        ACCEL_TRY(st, accel_loader_skip(l, n, err));
    accel_close(k->run, NULL);
    k->run = NULL;
    accel_dataset_close(d);
    return st;
}

/* ---- of a checkpoint ------------------------------------------------------------- */

static accel_status_t saved(struct number_run *k, int64_t n, accel_error_t *err)
{
    float one = 1;
    accel_ckpt_box_t box = { .name = asked == LETTERS ? word(n) : "w",
                             .dtype = ACCEL_F32,
                             .ndim = asked == DIMS ? (int)n : 1,
                             .data = &one };
    const accel_ckpt_save_t s = { sizeof(s),
                                  .root = root,
                                  .step = (int64_t)asked,
                                  .owner = asked == OWNER ? word(n) : "1.0",
                                  .sharding = asked == SHARDING ? word(n) : "NO_SHARD",
                                  .run_id = asked == RUN_ID ? word(n) : "run",
                                  .boxes = &box,
                                  .box_count = 1,
                                  .keep = 1 };

    (void)k;
    for (int d = 0; d < box.ndim && d < ACCEL_CKPT_MAX_DIMS; d++)
        box.shape[d] = box.global_shape[d] = 1;
    return accel_ckpt_save(&s, NULL, NULL, err);
}

/* ---- of tensors ------------------------------------------------------------------ */

static accel_status_t input_dims(struct number_run *k, int64_t n, accel_error_t *err)
{
    static const int64_t ones[] = { 1, 1, 1, 1, 1, 1 };
    const float x = 1;
    const accel_status_t st = with_loop(k, 1, 1, err);

    if (st || accel_batch_begin(k->run, err))
        return err->code;
    return accel_input(k->run, ACCEL_F32, (int)n, ones, &x, err) ? ACCEL_OK : err->code;
}

static accel_status_t buffer_dims(struct number_run *k, int64_t n, accel_error_t *err)
{
    static const int64_t ones[] = { 1, 1, 1, 1, 1, 1 };

    if (accel_param(k->a, "more", (int)n, ones, (accel_init_t){ ACCEL_INIT_ZEROS, 0 }))
        return ACCEL_OK;
    *err = k->run->graph.error;
    return err->code;
}

/* ---- the table ------------------------------------------------------------------- */

static const struct {
    const char *what;
    int64_t most;
    accel_status_t (*ask)(struct number_run *k, int64_t n, accel_error_t *err);
    enum number asked;
    const char *says;
} rows[] = {
    { "objects of the program", 64, objects, ITSELF, "at most 64 objects" },
    { "letters of an object", 63, object_name, ITSELF, "the name does not fit" },
    { "functions before a save", 8, hooks, SAVE_HOOKS, "at most 8 functions" },
    { "functions after a load", 8, hooks, LOAD_HOOKS, "at most 8 functions" },
    { "gradient functions", 8, hooks, GRADIENT_HOOKS, "at most 8 gradient" },
    { "sinks", 8, hooks, SINKS, "at most 8 sinks" },
    { "module trees", 16, trees, ITSELF, "at most 16 module trees" },
    { "letters of a model", 63, model_name, ITSELF, "is no name" },
    { "optimizers", 8, optims, ITSELF, "at most 8 optimizers" },
    { "letters of an optimizer", 63, optim_name, ITSELF, "is no name" },
    { "states of an own optimizer", 4, own_states, ITSELF, "0 to 4 names" },
    { "samples of a batch", 1 << 20, loop_batch, ITSELF, "between 1 and 1048576" },
    { "micro-batches of a step", 1 << 20, loop_group, ITSELF, "between 1 and 1048576" },
    { "micro-batches set later", 1 << 20, new_group, ITSELF, "make no step" },
    { "samples", INT64_C(1) << 48, dataset, SAMPLES, "281474976710657 samples" },
    { "fields", 8, dataset, FIELDS, "1 to 8 fields" },
    { "bytes of a sample", INT64_C(1) << 31, dataset, BYTES, "at most 2 GiB" },
    { "bytes of all fields", INT64_C(1) << 31, fields_bytes, ITSELF, "at most 2 GiB" },
    { "dimensions of a field", 3, dataset, DIMS, "0 to 3 dimensions" },
    { "letters of a loader", 63, loader, LETTERS, "1 to 63 letters" },
    { "samples of a loader's batch", 1 << 20, loader, SAMPLES,
      "between 1 and 1048576" },
    { "batches read ahead", 1024, loader, AHEAD, "between 0 and 1024" },
    { "threads", 256, loader, THREADS, "between 0 and 256" },
    { "the epoch", INT32_MAX, loader, EPOCH, "epoch 2147483648" },
    { "batches skipped", INT32_MAX, loader, SKIPPED, "2147483648 batches" },
    { "letters of a saved name", 511, saved, LETTERS, "longer than 511 bytes" },
    { "dimensions that are saved", 8, saved, DIMS, "invalid dtype, shape" },
    { "letters of a run's id", 1024, saved, RUN_ID, "owner, sharding or run id" },
    { "letters of an owner", 63, saved, OWNER, "owner, sharding or run id" },
    { "letters of a sharding", 63, saved, SHARDING, "owner, sharding or run id" },
    { "dimensions of an input", 4, input_dims, ITSELF, "5 dimensions" },
    { "dimensions of a parameter", 4, buffer_dims, ITSELF, "has 5 dimensions" },
};

int main(void)
{
    run_folder_new(root);
    snprintf(config, sizeof(config), "%s/one.yaml", root);
    number_config(config, 1, 1, "NO_SHARD", false);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        for (int beyond = -1; beyond <= 1; beyond++) {
            const int64_t n = rows[i].most + beyond;
            accel_error_t err = { 0 };
            struct number_run k;
            accel_status_t st = number_models(&k, config);

            asked = rows[i].asked;
            ACCEL_TRY(st, rows[i].ask(&k, n, &err));
            tap_ok(st == (beyond > 0 ? ACCEL_EINVAL : ACCEL_OK) &&
                       (beyond <= 0 || (strstr(err.text, rows[i].says) && err.hint[0])),
                   "%s, %lld: %s", rows[i].what, (long long)n, err.text);
            accel_close(k.run, NULL);
        }
    run_folder_remove(root);
    return tap_done();
}
