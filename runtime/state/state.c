/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint holds besides tensors, as text: the identity of the run (must agree
 * for a resume), progress (step, sample cursor, random streams, positions of loaders),
 * and settings that may change between starts (listed when they do). The world size is
 * not part of the progress: cursor and positions are global, and every random number is
 * a function of (seed, name or sample, index).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "preemption/preemption.h"
#include "loader/loader.h"
#include "state/state.h"
#include "training/parameter_groups.h"
#include "training/parts.h"
#include "common/key_lines.h"
#include "optim/optim.h"
#include "handle/run.h"

/* version of the trainer state's text */
#define STATE_VERSION 1

/* Digest of names and shapes of all parameters, and how many elements they have. */
static uint64_t model_digest(const struct units *units, int64_t *params_out)
{
    /* a sum of 64-bit hashes; wraps around */
    XXH64_hash_t h = 0;
    int64_t params = 0;

    /* The order of units follows the wrap policy and the digest must not, so the hashes
     * are added instead of chained. */
    for (int u = 0; u < units->count; u++) {
        for (int i = 0; i < units->unit[u].param_count; i++) {
            const accel_tensor_t *p = units->unit[u].param[i];
            const char *name = tensor_full_name(p);
            uint64_t shape = XXH3_64bits(p->dim, sizeof(p->dim[0]) * (size_t)p->ndim);

            h += XXH3_64bits_withSeed(name, strlen(name), shape);
            params += p->elems;
        }
    }
    *params_out = params;
    return h;
}

/* The settings of one optimizer; its name is a part of the keys. */
static void put_optimizer(const struct accel_optim *optim, struct strbuf *b)
{
    const accel_optimizer_t *o = &optim->settings;
    char buf[RUN_NAME + 1];
    const char *of = optim_suffix(optim, buf, sizeof(buf));

    strbuf_printf(b,
                  "lr%s=%.7g\nbeta1%s=%.7g\nbeta2%s=%.7g\n"
                  "eps%s=%.7g\nmomentum%s=%.7g\nnesterov%s=%d\nweight_decay%s=%.7g\n",
                  of, o->lr, of, o->beta1, of, o->beta2, of, o->eps, of, o->momentum,
                  of, o->nesterov != 0, of, o->weight_decay);
    for (int i = 0; i < o->group_count; i++)
        strbuf_printf(b,
                      "group%s_%d=%.200s lr_scale %.7g weight_decay %.7g frozen %d\n",
                      of, i, o->groups[i].match, o->groups[i].lr_scale,
                      o->groups[i].weight_decay, o->groups[i].frozen != 0);
    strbuf_printf(b, "clip%s=%.7g\n", of, optim->clip);
    parts_put_optimizer(optim, of, b);
}

/* That of a job follows from its steps and warm-up. */
static void put_schedule_settings(const accel_t *run, const struct accel_optim *o,
                                  struct strbuf *b)
{
    char text[SCHEDULE_SETTINGS], buf[RUN_NAME + 1];

    if (!o->scheduled || (!run->own_loop && !run->job.schedule))
        return;
    schedule_settings(&o->schedule.set, text);
    strbuf_printf(b, "schedule%s=%s\n", optim_suffix(o, buf, sizeof(buf)), text);
}

/* Settings that a restart may change, as lines; listed when they differ. */
static void put_settings(const accel_t *run, struct strbuf *b)
{
    const accel_job_t *j = &run->job;
    const struct precision p = precision_of(&run->config);

    strbuf_printf(b, "steps=%lld\nwarmup=%lld\n", (long long)j->steps,
                  (long long)j->warmup);
    for (int i = 0; i < run->optims; i++) {
        put_optimizer(&run->optim[i], b);
        put_schedule_settings(run, &run->optim[i], b);
    }
    strbuf_printf(b,
                  "batch=%d\naccumulate=%d\nworld_size=%d\n"
                  "mixed_precision=%s\nreduce=%s\n",
                  j->batch, j->accumulate, run->boot.size, precision_word(&p),
                  accel_dtype_name(p.reduce));
    parts_put_settings(run, b);
}

/* Equal names have equal state: "adamw", or "own" and the names of its state. */
static const char *kind_name(const struct accel_optim *o, char *buf, size_t len)
{
    size_t used;

    if (!o->own.update)
        return optim_name(&o->settings);
    used = (size_t)snprintf(buf, len, "own");
    for (int i = 0; i < o->own.states && used < len; i++)
        used += (size_t)snprintf(buf + used, len - used, "%s%s", i ? "," : ":",
                                 o->own.state[i]);
    return buf;
}

/* No batch size and no world size in run_id: a run may resume with others. What is not
 * in it may change, and then settings_compare warns. */
accel_status_t state_identity(accel_t *run, accel_error_t *err)
{
    struct strbuf b = { 0 };
    uint64_t data = 0;
    int64_t params;
    uint64_t model = model_digest(&run->units, &params);
    accel_status_t st = ACCEL_OK;

    if (run->job.data) {
        sample_wait_begin();
        st = data_digest(run->job.data, &data, err);
        sample_wait_end();
    }
    if (st != ACCEL_OK)
        return st;
    snprintf(run->progress.run_id, sizeof(run->progress.run_id),
             "run=%s model=%016" PRIx64 " params=%" PRId64 " data=%016" PRIx64
             " seed=%" PRIu64,
             run->run_name, model, params, data, run->job.seed);
    for (int i = 0; i < run->optims; i++) {
        const struct accel_optim *o = &run->optim[i];
        char name[256], buf[RUN_NAME + 1];
        const char *of = optim_suffix(o, buf, sizeof(buf));

        strbuf_printf(&b, "optimizer%s=%s\ntrained%s=%016" PRIx64 "\n", of,
                      kind_name(o, name, sizeof(name)), of, groups_trained(run, i));
    }
    put_settings(run, &b);
    if (b.failed) {
        strbuf_free(&b);
        return accel_fail_nomem(err, "the settings of the run", 4096);
    }
    state_identity_free(run);
    run->progress.settings = b.s;
    run->progress.sharding = config_strategy_name(config_strategy(&run->config));
    return ACCEL_OK;
}

void state_identity_free(accel_t *run)
{
    free(run->progress.settings);
    run->progress.settings = NULL;
}

/* fixed size, so that one broadcast carries the text */
#define AGREE_BYTES 8192

/* Everything that must be the same on all ranks, as lines "key=value", padded
 * with NUL. The config goes in as a digest; the other keys have lines, so that a
 * message can name them. */
static accel_status_t common_text(accel_t *run, char text_out[AGREE_BYTES],
                                  accel_error_t *err)
{
    char encoded[16 * 1024 + 1], fields[512] = "none";
    char id[sizeof(run->progress.run_id)], *save = NULL;
    struct strbuf b = { 0 };
    accel_status_t st;

    ACCEL_CHECK(st, config_encode(&run->config, encoded, sizeof(encoded), err));
    if (run->job.data)
        data_fields_text(run->job.data, fields, sizeof(fields));
    snprintf(id, sizeof(id), "%s", run->progress.run_id);
    for (char *w = strtok_r(id, " ", &save); w; w = strtok_r(NULL, " ", &save))
        strbuf_printf(&b, "%s\n", w);
    strbuf_printf(&b, "%s", run->progress.settings);
    strbuf_printf(&b,
                  "fields=%s\neval_every=%lld\ncheckpoints=%s\n"
                  "config=%016" PRIx64 "\n",
                  fields, (long long)run->job.eval_every, run->ckpt_dir,
                  (uint64_t)XXH3_64bits(encoded, strlen(encoded)));
    if (b.failed || b.len >= AGREE_BYTES) {
        strbuf_free(&b);
        return accel_fail_nomem(err, "the common settings", AGREE_BYTES);
    }
    memset(text_out, 0, AGREE_BYTES);
    memcpy(text_out, b.s, b.len);
    strbuf_free(&b);
    return ACCEL_OK;
}

/* Where the schedule stands. The lr that it works on is a setting, unless the program
 * has set another one on the way. */
static void put_schedule(const struct accel_optim *o, const char *of, struct strbuf *b)
{
    char text[SCHEDULE_TEXT];

    schedule_encode(&o->schedule, text);
    strbuf_printf(b, "schedule_at%s=%s\n", of, text);
    if (o->lr_set)
        strbuf_printf(b, "schedule_lr%s=%.9g\n", of, o->schedule.lr);
}

/* Steps and rate of each optimizer. */
static void put_optimizers_progress(const accel_t *run, struct strbuf *b)
{
    for (int i = 0; i < run->optims; i++) {
        const struct accel_optim *o = &run->optim[i];
        char buf[RUN_NAME + 1];
        const char *of = optim_suffix(o, buf, sizeof(buf));

        strbuf_printf(b, "optim_steps%s=%lld\n", of, (long long)o->t);
        if (o->scheduled)
            put_schedule(o, of, b);
        else
            strbuf_printf(b, "optim_lr%s=%.9g\n", of, o->lr);
    }
}

/* step, rng_step and the loaders' places are enough: nothing else of the loop outlives
 * a step. */
accel_status_t state_encode(const accel_t *run, char **text_out, size_t *bytes_out,
                            accel_error_t *err)
{
    struct strbuf b = { 0 };

    strbuf_printf(&b,
                  "accel_trainer=%d\nstep=%lld\naccumulation_index=%d\n"
                  "rng=philox4x32-10\nrng_seed=%" PRIu64 "\nrng_step=%lld\n",
                  STATE_VERSION, (long long)run->progress.step, run->loop.micro,
                  run->job.seed, (long long)run->progress.step);
    put_optimizers_progress(run, &b);
    parts_put_progress(run, &b);
    local_put(run, &b);
    model_put(run, &b);
    strbuf_printf(&b, "%s", run->progress.settings);
    loaders_encode(run, &b);
    if (b.failed) {
        strbuf_free(&b);
        return accel_fail_nomem(err, "the trainer state", 4096);
    }
    *text_out = b.s;
    *bytes_out = b.len;
    return ACCEL_OK;
}

/* The schedule where the checkpoint left it. Without a line the steps of its optimizer
 * are the moves it would have made. */
static accel_status_t schedule_at(const accel_t *run, const struct accel_optim *o,
                                  const char *text, struct schedule *out,
                                  bool *lr_set_out, accel_error_t *err)
{
    const int64_t each =
        o->schedule.set.move == ACCEL_MOVE_BY_RANKS ? run->mesh.data.size : 1;
    char key[RUN_NAME + 16], line[SCHEDULE_TEXT], buf[RUN_NAME + 1];
    const char *of = optim_suffix(o, buf, sizeof(buf));
    double lr = o->settings.lr;
    int64_t steps;
    accel_status_t st;

    snprintf(key, sizeof(key), "schedule_lr%s", of);
    *lr_set_out = key_line(text, key, line, sizeof(line));
    if (*lr_set_out)
        lr = (float)text_number(line, NULL);
    st = schedule_begin(out, &o->schedule.set, lr, err);
    snprintf(key, sizeof(key), "schedule_at%s", of);
    if (st == ACCEL_OK && key_line(text, key, line, sizeof(line)))
        return schedule_decode(out, line, err);
    snprintf(key, sizeof(key), "optim_steps%s", of);
    if (key_line_i64(text, key, &steps) || key_line_i64(text, "step", &steps))
        out->position = steps * each;
    return st;
}

/* A job's checkpoint without the line has AdamW's state. */
static accel_status_t check_optimizer(const accel_t *run, const struct accel_optim *o,
                                      const char *dir, const char *text,
                                      accel_error_t *err)
{
    char kind[256] = "adamw", trained[32], now[32], key[RUN_NAME + 16], name[256];
    char buf[RUN_NAME + 1];
    const char *of = optim_suffix(o, buf, sizeof(buf));
    const char *ours = kind_name(o, name, sizeof(name));
    struct schedule schedule;
    bool lr_set;

    snprintf(key, sizeof(key), "optimizer%s", of);
    if (!key_line(text, key, kind, sizeof(kind)) && o->name[0])
        return accel_fail_at(
            err, A0910, dir,
            "give the optimizers their old names, or use another --out",
            "the checkpoint has no optimizer called '%s'", o->name);
    if (strcmp(kind, ours) != 0)
        return accel_fail_at(
            err, A0910, dir, "use the optimizer of the checkpoint, or another --out",
            "the checkpoint has the state of %s, but this run uses %s", kind, ours);
    snprintf(key, sizeof(key), "trained%s", of);
    snprintf(now, sizeof(now), "%016" PRIx64, groups_trained(run, o->number));
    if (key_line(text, key, trained, sizeof(trained)) && strcmp(trained, now) != 0)
        return accel_fail_at(
            err, A0910, dir,
            "freeze the same parameters as the run that wrote it, or use another --out",
            "the checkpoint has optimizer state for different parameters "
            "than this run trains");
    return o->scheduled ? schedule_at(run, o, text, &schedule, &lr_set, err) : ACCEL_OK;
}

accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < run->optims && st == ACCEL_OK; i++)
        st = check_optimizer(run, &run->optim[i], dir, text, err);
    return st == ACCEL_OK ? parts_find(run, dir, text, err) : st;
}

/* A job's old checkpoint has no such lines: each of its steps was one of the optimizer.
 * state_check_optimizer has seen that schedules can be read. */
static void take_optimizers_progress(accel_t *run, const char *text, int64_t step)
{
    for (int i = 0; i < run->optims; i++) {
        struct accel_optim *o = &run->optim[i];
        char key[RUN_NAME + 16], lr[32], buf[RUN_NAME + 1];
        const char *of = optim_suffix(o, buf, sizeof(buf));

        snprintf(key, sizeof(key), "optim_steps%s", of);
        if (!key_line_i64(text, key, &o->t))
            o->t = step;
        snprintf(key, sizeof(key), "optim_lr%s", of);
        if (o->scheduled)
            (void)schedule_at(run, o, text, &o->schedule, &o->lr_set, NULL);
        else if (key_line(text, key, lr, sizeof(lr)))
            o->lr = (float)text_number(lr, NULL);
    }
}

/* Keys that it does not know are ignored. */
accel_status_t state_decode(accel_t *run, const char *text, accel_error_t *err)
{
    int64_t version, step, cursor;
    accel_status_t st = ACCEL_OK;

    if (!key_line_i64(text, "accel_trainer", &version) ||
        !key_line_i64(text, "step", &step) || !loaders_taken(text, &cursor)) {
        st = accel_fail(err, A0819, "use another checkpoint",
                        "the trainer state has no step or cursor");
    } else if (version != STATE_VERSION) {
        st = accel_fail(
            err, A0813, "use the accel version that wrote it",
            "the trainer state has version %lld, but this accel reads version %d",
            (long long)version, STATE_VERSION);
    } else {
        settings_compare(run, text);
        take_optimizers_progress(run, text, step);
        parts_take_progress(run, text);
        run->progress.step = step;
        run->progress.cursor = cursor;
    }
    return st;
}

/* The first line of `mine` that `root`, rank 0's text, lacks or has with another value.
 * Cuts `mine` into pieces. */
static accel_status_t first_difference(const accel_t *run, char *mine, const char *root,
                                       accel_error_t *err)
{
    char *save = NULL;

    for (char *line = strtok_r(mine, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(line, '=');
        char theirs[2100] = "";

        *eq = '\0';
        if (!key_line(root, line, theirs, sizeof(theirs)) ||
            strcmp(theirs, eq + 1) != 0)
            return accel_fail(err, A0905,
                              "start every rank with the same command and config",
                              "the ranks were started with different settings: %s is "
                              "%.200s on rank %d and %.200s on rank 0",
                              line, eq + 1, run->boot.rank, theirs);
    }
    return ACCEL_OK;
}

/* Each rank compares with rank 0's text. run_agree before the broadcast keeps a rank
 * that failed from leaving the others in it. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err)
{
    char *mine = calloc(2, AGREE_BYTES), *root = mine ? mine + AGREE_BYTES : NULL;
    accel_status_t st = mine ? common_text(run, mine, err)
                             : accel_fail_nomem(err, "settings", 2 * AGREE_BYTES);

    st = run_agree(run, st, err);
    if (st == ACCEL_OK) {
        memcpy(root, mine, AGREE_BYTES);
        st = comm_broadcast(run->comm, root, AGREE_BYTES, 0, err);
    }
    if (st == ACCEL_OK) {
        st =
            strcmp(mine, root) == 0 ? ACCEL_OK : first_difference(run, mine, root, err);
        st = run_agree(run, st, err);
    }
    free(mine);
    return st;
}
