/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_load_part: loads all or some weights from a checkpoint of any run, under their
 * own names or others. In: a directory, a glob, a map of names. Out: parameters and
 * buffers, and a report of what did not fit. Never touches optimizer state or progress.
 */
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "state/state.h"
#include "training/ema.h"
#include "training/moments_form.h"
#include "training/master_weights.h"
#include "state/run_boxes.h"
#include "handle/run.h"
#include "weights/weights.h"

/* A weight of the run: a parameter or a buffer. */
struct target {
    const accel_tensor_t *tensor;
    const char *name;
    bool is_buffer;
    /* name in the checkpoint with its "model/" or "buffer/", and that of the scales of
     * float16 masters; NULL: none */
    const char *source, *scales;
};

/* One call on this rank. */
struct part_load {
    accel_t *run;
    accel_part_t part;
    accel_ckpt_t *ckpt;
    struct target *target;
    size_t targets;
    /* the type of the weights that are taken, once there is one */
    accel_dtype_t masters;
    bool any;
    accel_part_report_t report;
};

void accel_part_report_free(accel_part_report_t *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->missing_count; i++)
        free(r->missing[i]);
    for (size_t i = 0; i < r->unexpected_count; i++)
        free(r->unexpected[i]);
    free(r->missing);
    free(r->unexpected);
    r->missing = r->unexpected = NULL;
    r->loaded = r->missing_count = r->unexpected_count = 0;
}

/* Appends a copy of `name`. */
static accel_status_t add_name(char ***list, size_t *n, const char *name,
                               accel_error_t *err)
{
    char **more = reallocarray(*list, *n + 1, sizeof(**list));

    if (more)
        *list = more;
    if (!more || !(more[*n] = strdup(name)))
        return accel_fail_nomem(err, "the report of a load", strlen(name));
    (*n)++;
    return ACCEL_OK;
}

/* ---- which is which -------------------------------------------------------------- */

static accel_status_t list_targets(struct part_load *l, accel_error_t *err)
{
    const struct units *units = &l->run->units;
    size_t buffers = (size_t)models_buffers(l->run, NULL), n = buffers;
    accel_tensor_t **buffer = calloc(buffers + 1, sizeof(*buffer));

    for (int u = 0; u < units->count; u++)
        n += (size_t)units->unit[u].param_count;
    l->target = calloc(n + 1, sizeof(*l->target));
    if (!l->target || !buffer) {
        free(buffer);
        return accel_fail_nomem(err, "the list of parameters", n * sizeof(*l->target));
    }
    for (int u = 0; u < units->count; u++)
        for (int i = 0; i < units->unit[u].param_count; i++) {
            const accel_tensor_t *p = units->unit[u].param[i];

            l->target[l->targets++] =
                (struct target){ .tensor = p, .name = tensor_full_name(p) };
        }
    models_buffers(l->run, buffer);
    for (size_t i = 0; i < buffers; i++)
        l->target[l->targets++] = (struct target){ .tensor = buffer[i],
                                                   .name = tensor_full_name(buffer[i]),
                                                   .is_buffer = true };
    free(buffer);
    return ACCEL_OK;
}

/* The name in the run of `name` in the checkpoint, in buf[len]. */
static void renamed(const accel_part_t *part, const char *name, char *buf, size_t len)
{
    for (int i = 0; i < part->rename_count; i++) {
        const char *from = part->rename[i].from;
        size_t n = strlen(from);
        bool prefix = n == 0 || from[n - 1] == '.';

        if (prefix ? strncmp(name, from, n) == 0 : strcmp(name, from) == 0) {
            snprintf(buf, len, "%s%s", part->rename[i].to, name + n);
            return;
        }
    }
    snprintf(buf, len, "%s", name);
}

static struct target *find_target(struct part_load *l, const char *name, bool is_buffer)
{
    for (size_t i = 0; i < l->targets; i++)
        if (l->target[i].is_buffer == is_buffer && strcmp(l->target[i].name, name) == 0)
            return &l->target[i];
    return NULL;
}

/* The type that the checkpoint must have for t. Weights come in any form that masters
 * have, but all in one: that of the first. */
static accel_dtype_t wanted_type(struct part_load *l, const struct target *t,
                                 accel_dtype_t theirs)
{
    if (t->is_buffer)
        return t->tensor->dtype;
    if (!l->any &&
        (theirs == ACCEL_F32 || theirs == ACCEL_BF16 || theirs == ACCEL_F16)) {
        l->masters = theirs;
        l->any = true;
    }
    return l->masters;
}

/* Takes tensor `source` of the checkpoint, whose name in it is `name`, for t, which
 * wants type `ours`. */
static accel_status_t match_target(struct target *t, accel_dtype_t ours,
                                   const char *source, const char *name,
                                   accel_dtype_t dtype, int ndim, const int64_t *shape,
                                   accel_error_t *err)
{
    const accel_tensor_t *p = t->tensor;
    char have[128], want[128];

    if (t->source)
        return accel_fail_at(
            err, A0836, t->name, "rename each to a name of its own",
            "the checkpoint's %.150s and %.150s would both be this one",
            strchr(t->source, '/') + 1, name);
    if (ndim != p->ndim || dtype != ours ||
        memcmp(shape, p->dim, (size_t)ndim * sizeof(*shape)) != 0) {
        weight_shape_text(ndim, shape, false, have, sizeof(have));
        weight_shape_text(p->ndim, p->dim, false, want, sizeof(want));
        return accel_fail_at(
            err, A0836, t->name, "leave it out with match, or build the same model",
            "%.200s of the checkpoint is %s %s, but the run takes %s "
            "%s here",
            name, accel_dtype_name(dtype), have, accel_dtype_name(ours), want);
    }
    t->source = source;
    return ACCEL_OK;
}

/* Scales go where their weights go. */
static void take_scales(struct part_load *l, const char *source)
{
    const char *name = strchr(source, '/') + 1;
    struct target *t;
    char ours[1024];

    if (l->part.match && fnmatch(l->part.match, name, 0) != 0)
        return;
    renamed(&l->part, name, ours, sizeof(ours));
    t = find_target(l, ours, false);
    if (t)
        t->scales = source;
}

/* Every weight of the checkpoint that the part takes finds its target. */
static accel_status_t match_all(struct part_load *l, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    l->masters = precision_of(&l->run->config).masters;
    for (size_t i = 0; i < accel_ckpt_tensor_count(l->ckpt) && !st; i++) {
        const int64_t *shape;
        const char *source, *name;
        accel_dtype_t dtype;
        struct target *t;
        char ours[1024];
        bool is_buffer;
        int ndim;

        ACCEL_CHECK(st, accel_ckpt_tensor(l->ckpt, i, &source, &dtype, &ndim, &shape));
        is_buffer = strncmp(source, "buffer/", 7) == 0;
        if (shard_is_exponents(source))
            take_scales(l, source);
        if (!is_buffer && strncmp(source, "model/", 6) != 0)
            continue;
        name = strchr(source, '/') + 1;
        if (l->part.match && fnmatch(l->part.match, name, 0) != 0)
            continue;
        renamed(&l->part, name, ours, sizeof(ours));
        t = find_target(l, ours, is_buffer);
        st =
            t ? match_target(t, wanted_type(l, t, dtype), source, name, dtype, ndim,
                             shape, err)
              : add_name(&l->report.unexpected, &l->report.unexpected_count, name, err);
    }
    for (size_t i = 0; i < l->targets && !st; i++)
        if (l->target[i].source && !l->target[i].is_buffer && l->masters == ACCEL_F16 &&
            !l->target[i].scales)
            st = accel_fail_at(err, A0999, l->target[i].name, "use another checkpoint",
                               "the checkpoint has no scales for this weight");
        else if (l->target[i].source)
            l->report.loaded++;
        else
            st = add_name(&l->report.missing, &l->report.missing_count,
                          l->target[i].name, err);
    return st;
}

static accel_status_t check_strict(const struct part_load *l, const char *dir,
                                   accel_error_t *err)
{
    const accel_part_report_t *r = &l->report;

    if (!l->part.strict || r->missing_count + r->unexpected_count == 0)
        return ACCEL_OK;
    return accel_fail_at(err, A0836, dir,
                         "the report lists all names; give a rename map or a match",
                         "%zu parameters of the run have no values in the "
                         "part%s%.150s%s, and %zu of the "
                         "part are not in the run%s%.150s%s",
                         r->missing_count, r->missing_count ? " (" : "",
                         r->missing_count ? r->missing[0] : "",
                         r->missing_count > 1   ? ", ...)"
                         : r->missing_count > 0 ? ")"
                                                : "",
                         r->unexpected_count, r->unexpected_count ? " (" : "",
                         r->unexpected_count ? r->unexpected[0] : "",
                         r->unexpected_count > 1   ? ", ...)"
                         : r->unexpected_count > 0 ? ")"
                                                   : "");
}

/* ---- reading --------------------------------------------------------------------- */

/* Keeps the boxes that have a source, under that name, and drops the others, so that
 * they are neither read nor stored. */
static void keep_boxes(struct part_load *l, struct run_boxes *b)
{
    size_t kept = 0, shards = 0;

    for (size_t i = 0; i < b->count; i++) {
        const bool is_buffer = strncmp(b->all[i].name, "buffer/", 7) == 0;
        const bool scales = shard_is_exponents(b->all[i].name);
        const struct target *t = NULL;

        if (is_buffer || scales || strncmp(b->all[i].name, "model/", 6) == 0)
            t = find_target(l, strchr(b->all[i].name, '/') + 1, is_buffer);
        if (!t || !t->source)
            continue;
        b->all[kept] = b->all[i];
        b->all[kept].name = scales ? t->scales : t->source;
        if (b->device)
            b->device[kept] = b->device[i];
        kept++;
        shards += i < b->shard_count;
    }
    b->count = kept;
    b->shard_count = shards;
}

/* A shard_saved callback. */
static bool was_read(void *user, const accel_tensor_t *p)
{
    struct part_load *l = user;
    const struct target *t = find_target(l, tensor_full_name(p), false);

    return t && t->source;
}

/* Collective. */
static accel_status_t read_part(struct part_load *l, const char *dir,
                                accel_error_t *err)
{
    struct run_boxes boxes = { 0 };
    accel_moments_t moments[ACCEL_MAX_OPTIMS];
    accel_status_t st;

    moments_own(l->run, moments);
    st = run_boxes_saved(l->run, false, l->masters, moments, &boxes, err);
    boxes.saved.has = was_read;
    boxes.saved.user = l;
    st = run_agree(l->run, st, err);
    if (!st) {
        keep_boxes(l, &boxes);
        shard_settle(l->run->shard);
        l->run->program.overwritten = boxes.count > 0;
        st = run_boxes_read(l->run, l->ckpt, &boxes, err);
    }
    ACCEL_TRY(st, shard_check_scales(boxes.all, boxes.count, dir, err));
    if (!st) {
        run_boxes_store(l->run, &boxes);
        st = shard_take_saved(l->run->shard, &boxes.saved, err);
        shard_loaded(l->run->shard);
        for (size_t i = 0; i < l->targets; i++)
            if (l->target[i].source && !l->target[i].is_buffer)
                shard_given(l->run->shard, l->target[i].tensor);
    }
    run_boxes_free(&boxes);
    return run_agree(l->run, st, err);
}

/* ---- the call -------------------------------------------------------------------- */

/* Not collective: what can be wrong before the directory is looked at. */
static accel_status_t check_part(accel_t *run, const char *dir,
                                 const accel_part_t *part, accel_error_t *err)
{
    if (run->loop.in_micro)
        return accel_fail(err, A0901, "call it after accel_backward",
                          "accel_load_part in the middle of a micro-batch");
    if (!dir || !*dir)
        return accel_fail(err, A0902, "pass a directory",
                          "accel_load_part: the directory is NULL or empty");
    if (part->rename_count < 0 || (part->rename_count && !part->rename))
        return accel_fail(err, A0902, "pass rename_count pairs",
                          "accel_load_part: %d renames, but no list",
                          part->rename_count);
    for (int i = 0; i < part->rename_count; i++)
        if (!part->rename[i].from || !part->rename[i].to)
            return accel_fail(err, A0902, "use \"\" for all names",
                              "accel_load_part: a name of rename %d is NULL", i);
    return own_units_done(run, err);
}

/* Collective. Nothing is read before all ranks have found the same. */
static accel_status_t load_part_of(struct part_load *l, const char *dir,
                                   accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(l->run->comm);
    char path[PATH_MAX];
    accel_status_t st;

    ACCEL_CHECK(st, run_agree(l->run, check_part(l->run, dir, &l->part, err), err));
    ACCEL_CHECK(st, state_dirs_find(l->run, dir, path, sizeof(path), err));
    st = accel_ckpt_open_together(&l->ckpt, path, &coll, err);
    ACCEL_TRY(st, local_refuse(path, l->ckpt, err));
    ACCEL_TRY(st, list_targets(l, err));
    ACCEL_TRY(st, match_all(l, err));
    ACCEL_TRY(st, check_strict(l, path, err));
    st = run_agree(l->run, st, err);
    ACCEL_TRY(st, read_part(l, path, err));
    if (!st && l->run->boot.rank == 0)
        accel_logf(&l->run->log, ACCEL_LOG_INFO,
                   "%zu parameters and buffers read from %s; %zu of the run without "
                   "values, %zu of the part unused",
                   l->report.loaded, path, l->report.missing_count,
                   l->report.unexpected_count);
    if (!st)
        masters_warn(l->run, l->masters, true);
    return st;
}

accel_status_t accel_load_part(accel_t *run, const char *dir, const accel_part_t *part,
                               accel_part_report_t *report, accel_error_t *err)
{
    const struct sized *type = SIZED(accel_part_report_t, unexpected_count);
    struct part_load l = { .run = run };
    accel_error_t e = { 0 };
    accel_status_t st = run_trains(run, "accel_load_part", err);

    ACCEL_TRY(st, sized_read(SIZED(accel_part_t, strict), &l.part, part, err));
    if (report)
        ACCEL_TRY(st, sized_check(type, report, err));
    if (st)
        return st;
    run->program.overwritten = false;
    st = state_dirs_end(run, load_part_of(&l, dir, &e), &e, err);
    accel_ckpt_close(l.ckpt);
    free(l.target);
    if (report)
        sized_write(type, report, &l.report);
    else
        accel_part_report_free(&l.report);
    return st;
}
