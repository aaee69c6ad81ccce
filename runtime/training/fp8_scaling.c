/* SPDX-License-Identifier: Apache-2.0
 *
 * The scales of linears whose matmuls are fp8. In: the config and the models; the
 * largest magnitudes that forwards and backwards record in the histories. Out: weights
 * that carry scales. All scales change once, at the end of a step, and are the same on
 * all ranks. A checkpoint has a tensor "fp8/WEIGHT" for each linear, which rank 0
 * writes and one rank reads for all, and the recipe among the settings. A linear
 * without scales in the checkpoint starts with new ones, and a warning says so. The
 * recipe and the length of histories may change.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "common/key_lines.h"
#include "handle/run.h"
#include "training/fp8_scaling.h"
#include "training/parts.h"

/* Three histories of a linear then take 12 MiB. */
#define LONGEST_HISTORY (1 << 20)

static bool blocks_possible(const struct backend *be, enum fp8_blocks blocks)
{
    return blocks == FP8_NO_BLOCKS ||
           (be->fp8_blocks &
            (blocks == FP8_BLOCKS_128 ? BACKEND_BLOCKS_128 : BACKEND_BLOCKS_32));
}

static accel_status_t fp8_possible(const accel_t *run, accel_error_t *err)
{
    static const char length[] = "fp8_amax_history_len";
    const int64_t history = config_get_int(&run->config, length);
    const struct fp8_recipe recipe = fp8_recipe_of(&run->config);
    char where[256];

    if (history > LONGEST_HISTORY)
        return accel_fail_at(err, A0170,
                             config_where(&run->config, length, where, sizeof(where)),
                             "use 1 to 1048576", "'%s: %lld' is not supported", length,
                             (long long)history);
    if (!blocks_possible(run->backend, recipe.blocks))
        return accel_fail_at(
            err, A0170, config_where(&run->config, "fp8_recipe", where, sizeof(where)),
            blocks_possible(run->backend, FP8_BLOCKS_128)
                ? "use accel.precision.fp8_recipe: block, or accel.device: cpu"
                : "use accel.precision.fp8_recipe: current, or accel.device: cpu",
            "'fp8_recipe: %s' is not supported on this GPU (%s)",
            fp8_recipe_word(&recipe), run->backend->isa);
    if (run->backend->fp8 != BACKEND_FP8_NONE)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0170, config_where(&run->config, "mixed_precision", where, sizeof(where)),
        "use mixed_precision: bf16, or accel.device: cpu",
        "'mixed_precision: fp8' is not supported on this GPU (%s): it takes one of "
        "capability 8.9, 9.0 or 10.0",
        run->backend->isa);
}

/* What the user may not expect. */
static void say_linears(const accel_t *run)
{
    const struct fp8_linears *l = &run->fp8.linears;

    if (run->boot.rank != 0)
        return;
    if (l->count == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "mixed_precision fp8 has no effect: no linear between the first and "
                   "the last has sizes that are multiples of %d; "
                   "accel.precision.modules names others",
                   FP8_MULTIPLE);
    else
        accel_logf(&run->log, ACCEL_LOG_INFO, "fp8: %d of %d linears multiply in fp8",
                   l->count, l->candidates);
}

accel_status_t fp8_scales_begin(accel_t *run, accel_error_t *err)
{
    struct fp8_scales *f = &run->fp8;
    accel_module_t *root[RUN_MAX_TREES];
    accel_status_t st;

    if (!precision_of(&run->config).fp8)
        return ACCEL_OK;
    for (int i = 0; i < run->models; i++)
        root[i] = run->model[i].root;
    ACCEL_CHECK(st, fp8_possible(run, err));
    ACCEL_CHECK(st,
                fp8_linears_open(&f->linears, root, run->models, &run->config, err));
    ACCEL_CHECK(st, fp8_linears_place(&f->linears, run->backend, err));
    f->seen = calloc(FP8_TENSORS * (size_t)f->linears.count + 1, sizeof(*f->seen));
    if (!f->seen)
        return accel_fail_nomem(err, "the scales of linears",
                                FP8_TENSORS * (size_t)f->linears.count * sizeof(float));
    say_linears(run);
    return ACCEL_OK;
}

void fp8_scales_free(accel_t *run)
{
    free(run->fp8.seen);
    free(run->fp8.found);
    fp8_linears_close(&run->fp8.linears);
}

/* One reduction for all linears: each history's place 0 becomes the largest of all
 * ranks. */
static accel_status_t fp8_agree(accel_t *run, accel_error_t *err)
{
    const struct fp8_linears *l = &run->fp8.linears;
    const size_t count = FP8_TENSORS * (size_t)l->count;
    float *seen = run->fp8.seen;
    accel_status_t st;

    fp8_linears_look(&run->fp8.linears);
    ACCEL_CHECK(st, run->backend->check(run->backend, err));
    for (size_t i = 0; i < count; i++)
        seen[i] = fp8_history(&l->linear[i / FP8_TENSORS],
                              (enum fp8_tensor)(i % FP8_TENSORS))[0];
    st = comm_all_reduce(run->comm, seen, count, ACCEL_F32, COMM_MAX, err);
    for (size_t i = 0; i < count && st == ACCEL_OK; i++)
        fp8_history(&l->linear[i / FP8_TENSORS],
                    (enum fp8_tensor)(i % FP8_TENSORS))[0] = seen[i];
    return st;
}

accel_status_t fp8_scales_end_step(accel_t *run, accel_error_t *err)
{
    struct fp8_scales *f = &run->fp8;
    accel_status_t st;

    if (!fp8_scales_kept(run))
        return ACCEL_OK;
    ACCEL_CHECK(st, fp8_agree(run, err));
    f->steps++;
    for (int i = 0; i < f->linears.count; i++)
        fp8_update(&f->linears.linear[i], f->steps % f->linears.recipe.interval == 0);
    fp8_linears_show(&f->linears);
    return ACCEL_OK;
}

void fp8_scales_forget(accel_t *run)
{
    fp8_linears_show(&run->fp8.linears);
}

/* ---- in the texts of checkpoints ------------------------------------------------- */

static const char prefix[] = "fp8/";

static void fp8_put_rule(const accel_t *run, struct strbuf *b)
{
    const struct fp8_recipe *r = &run->fp8.linears.recipe;

    if (run->fp8.linears.count > 0)
        strbuf_printf(b, "fp8=%s wide %d%d%d linears %d %s\n",
                      accel_dtype_name(r->type[FP8_GRADIENT]), r->wide[FP8_FORWARD],
                      r->wide[FP8_INPUT_GRADIENT], r->wide[FP8_WEIGHT_GRADIENT],
                      run->fp8.linears.count, fp8_recipe_word(r));
    if (fp8_scales_kept(run))
        strbuf_printf(b, "fp8_delayed=%s margin %d every %lld\n",
                      r->most_recent ? "most_recent" : "max", r->margin,
                      (long long)r->interval);
}

static void fp8_put_progress(const accel_t *run, struct strbuf *b)
{
    if (fp8_scales_kept(run))
        strbuf_printf(b, "scale_steps=%lld\nscale_history=%lld\n",
                      (long long)run->fp8.steps,
                      (long long)run->fp8.linears.recipe.history);
}

static accel_ckpt_box_t fp8_box(const char *name, int64_t history, float *data)
{
    return (accel_ckpt_box_t){ .name = name,
                               .dtype = ACCEL_F32,
                               .ndim = 2,
                               .global_shape = { FP8_TENSORS, 1 + history },
                               .shape = { FP8_TENSORS, 1 + history },
                               .data = data };
}

size_t fp8_boxes(const accel_t *run, accel_ckpt_box_t *box, char *text,
                 size_t *text_bytes_out)
{
    const struct fp8_linears *l = &run->fp8.linears;
    size_t used = 0;

    *text_bytes_out = 0;
    if (!fp8_scales_kept(run))
        return 0;
    for (int i = 0; i < l->count; i++) {
        const char *name = tensor_full_name(l->weight[i]);
        const size_t bytes = sizeof(prefix) + strlen(name);

        if (box) {
            snprintf(text + used, bytes, "%s%s", prefix, name);
            box[i] = fp8_box(text + used, l->recipe.history, l->linear[i].state);
        }
        used += bytes;
    }
    *text_bytes_out = used;
    return (size_t)l->count;
}

/* ---- from a checkpoint ----------------------------------------------------------- */

/* A checkpoint at work: its place for messages, and how long its histories are. */
struct fp8_source {
    accel_ckpt_t *c;
    const char *dir;
    int64_t history;
};

static accel_status_t fp8_damaged(const struct fp8_source *from, const char *name,
                                  const char *what, accel_error_t *err)
{
    return accel_fail_at(err, A0998, from->dir,
                         "use another checkpoint, or begin a new run",
                         "the scales of %s in the checkpoint %s", name, what);
}

/* Tensors are in the order of their names. */
static bool fp8_stored(accel_ckpt_t *c, const char *name, accel_dtype_t *dtype_out,
                       int *ndim_out, const int64_t **shape_out)
{
    size_t low = 0, high = accel_ckpt_tensor_count(c);

    while (low < high) {
        const size_t middle = (low + high) / 2;
        const char *at;
        int order;

        if (accel_ckpt_tensor(c, middle, &at, dtype_out, ndim_out, shape_out) !=
            ACCEL_OK)
            return false;
        order = strcmp(name, at);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

/* The newest steps of histories of another length; what was not seen stays 0. */
static void fp8_fit(const struct fp8_linear *to, const float *from, int64_t history)
{
    const int64_t ours = to->recipe->history;
    const int64_t steps = (history < ours ? history : ours) - 1;

    for (int t = 0; t < FP8_TENSORS; t++, from += 1 + history) {
        float *at = fp8_scale(to, (enum fp8_tensor)t);

        at[0] = from[0];
        at[1] = from[1];
        memcpy(at + 1 + ours - steps, from + 1 + history - steps,
               (size_t)steps * sizeof(*at));
    }
}

/* Has the checkpoint scales for weight `name`, of the right form? */
static accel_status_t fp8_look(const struct fp8_source *from, const char *name,
                               bool *stored_out, accel_error_t *err)
{
    const size_t len = sizeof(prefix) + strlen(name);
    char *stored = malloc(len);
    const int64_t *shape = NULL;
    accel_dtype_t dtype = ACCEL_F32;
    int ndim = 0;

    if (!stored)
        return accel_fail_nomem(err, "the name of a tensor", len);
    snprintf(stored, len, "%s%s", prefix, name);
    *stored_out = fp8_stored(from->c, stored, &dtype, &ndim, &shape);
    free(stored);
    if (*stored_out && dtype != ACCEL_F32)
        return fp8_damaged(from, name, "are not float32", err);
    if (*stored_out &&
        (ndim != 2 || shape[0] != FP8_TENSORS || shape[1] != 1 + from->history))
        return fp8_damaged(from, name, "have a wrong length", err);
    return ACCEL_OK;
}

/* from->history, 0 of a checkpoint without scales. Its two lines come together. */
static accel_status_t fp8_lines(struct fp8_source *from, const char *text,
                                accel_error_t *err)
{
    char steps[32], history[32];
    const bool has_steps = key_line(text, "scale_steps", steps, sizeof(steps));
    const bool has_history = key_line(text, "scale_history", history, sizeof(history));
    int64_t value;

    if (!has_steps && !has_history)
        return ACCEL_OK;
    if (key_line_i64(text, "scale_steps", &value) &&
        key_line_i64(text, "scale_history", &from->history) && from->history > 0 &&
        from->history < INT32_MAX)
        return ACCEL_OK;
    return accel_fail_at(err, A0998, from->dir,
                         "use another checkpoint, or begin a new run",
                         "the checkpoint's steps of fp8 scales ('%s') or the length of "
                         "their histories ('%s') cannot be read",
                         has_steps ? steps : "", has_history ? history : "");
}

/* The boxes of those that `stored` marks, and memory for what is read. */
static accel_status_t fp8_list(const struct fp8_linears *l, const bool *stored,
                               struct fp8_stored *s, accel_error_t *err)
{
    const size_t each = FP8_TENSORS * (size_t)(1 + s->history);
    size_t names = 1, used = 0, count = 0;

    for (int i = 0; i < l->count; i++)
        if (stored[i]) {
            names += sizeof(prefix) + strlen(tensor_full_name(l->weight[i]));
            count++;
        }
    s->box = calloc(count + 1, sizeof(*s->box));
    s->linear = calloc(count + 1, sizeof(*s->linear));
    s->names = malloc(names);
    s->data = malloc((count * each + 1) * sizeof(*s->data));
    if (!s->box || !s->linear || !s->names || !s->data)
        return accel_fail_nomem(err, "the scales of linears", count * each * 4);
    for (int i = 0; i < l->count; i++) {
        const char *name = tensor_full_name(l->weight[i]);

        if (!stored[i])
            continue;
        s->box[s->count] =
            fp8_box(s->names + used, s->history, s->data + s->count * each);
        s->linear[s->count++] = i;
        used += (size_t)sprintf(s->names + used, "%s%s", prefix, name) + 1;
    }
    return ACCEL_OK;
}

accel_status_t fp8_find(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const char *text, struct fp8_stored *stored_out,
                        accel_error_t *err)
{
    const struct fp8_linears *l = &run->fp8.linears;
    struct fp8_source from = { c, dir, 0 };
    accel_status_t st;
    bool *stored;

    if (!fp8_scales_kept(run))
        return ACCEL_OK;
    st = fp8_lines(&from, text, err);
    if (st != ACCEL_OK || from.history == 0)
        return st;
    stored = calloc((size_t)l->count + 1, sizeof(*stored));
    if (!stored)
        return accel_fail_nomem(err, "a list of linears", (size_t)l->count);
    for (int i = 0; i < l->count && st == ACCEL_OK; i++)
        st = fp8_look(&from, tensor_full_name(l->weight[i]), &stored[i], err);
    stored_out->history = from.history;
    ACCEL_TRY(st, fp8_list(l, stored, stored_out, err));
    free(stored);
    return st;
}

void fp8_stored_free(struct fp8_stored *s)
{
    free(s->box);
    free(s->linear);
    free(s->names);
    free(s->data);
}

/* States of all linears: as the checkpoint has them, or new ones. */
static accel_status_t fp8_fill(accel_t *run, const struct fp8_source *from,
                               const struct fp8_stored *s, accel_error_t *err)
{
    const struct fp8_linears *l = &run->fp8.linears;
    const size_t each = (size_t)fp8_state_elems(&l->recipe);
    struct fp8_linear to = { .recipe = &l->recipe };

    run->fp8.found = calloc((size_t)l->count * each, sizeof(float));
    if (!run->fp8.found)
        return accel_fail_nomem(err, "the scales of linears",
                                (size_t)l->count * each * 4);
    for (int i = 0; i < l->count; i++) {
        to.state = run->fp8.found + (size_t)i * each;
        fp8_begin(&to);
    }
    for (size_t k = 0; k < s->count; k++) {
        to.state = run->fp8.found + (size_t)s->linear[k] * each;
        fp8_fit(&to, s->box[k].data, s->history);
        if (!fp8_take(&to))
            return fp8_damaged(from, tensor_full_name(l->weight[s->linear[k]]),
                               "have numbers that no run leaves there", err);
    }
    return ACCEL_OK;
}

accel_status_t fp8_read(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const struct fp8_stored *s, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    const struct fp8_source from = { c, dir, s->history };
    accel_status_t st;

    free(run->fp8.found);
    run->fp8.found = NULL;
    st = accel_ckpt_read_together(c, s->box, s->count, &coll, err);
    return st == ACCEL_OK && s->history > 0 ? fp8_fill(run, &from, s, err) : st;
}

/* What a resume does to the scales that the user may not expect. */
static void fp8_say(const accel_t *run, bool stored)
{
    if (run->boot.rank != 0)
        return;
    if (fp8_scales_kept(run) && !stored)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "the checkpoint has no fp8 scales: they begin again");
    else if (!fp8_scales_kept(run) && stored)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "the fp8 scales of the checkpoint are not used, and the next "
                   "checkpoint will not have them");
}

static void fp8_take_progress(accel_t *run, const char *text)
{
    struct fp8_scales *f = &run->fp8;
    int64_t steps;
    const bool stored = key_line_i64(text, "scale_steps", &steps);

    fp8_say(run, stored);
    f->steps = stored ? steps : 0;
    for (int i = 0; i < f->linears.count; i++)
        fp8_begin(&f->linears.linear[i]);
    if (f->found)
        memcpy(f->linears.state, f->found,
               (size_t)f->linears.count * (size_t)fp8_state_elems(&f->linears.recipe) *
                   sizeof(*f->found));
    for (int i = 0; i < f->linears.count; i++)
        (void)fp8_take(&f->linears.linear[i]);
    fp8_linears_show(&f->linears);
    free(f->found);
    f->found = NULL;
}

const struct training_part fp8_part = {
    .put_settings = fp8_put_rule,
    .put_progress = fp8_put_progress,
    .take_progress = fp8_take_progress,
};
