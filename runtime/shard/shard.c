/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes the sharded state: all memory, as the layout counts it, and the
 * residency table through which the tape requests units. Nothing is allocated during a
 * step.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

#include "numbers/wire.h"

/* What the optimizer keeps for each trained element. */
static void trainer_arrays(struct shard_trainer *t, const struct shard_optim *o)
{
    const char *const *names = o->own.state;

    t->o = *o;
    t->states = o->own.states;
    if (!o->own.update)
        names = optim_state_names(&o->settings, &t->states);
    for (int k = 0; k < t->states; k++)
        t->state_name[k] = names[k];
    t->form = o->own.update ? ACCEL_MOMENTS_FLOAT32 : o->settings.moments;
    t->arrays = t->states;
    if (o->averaged)
        t->state_name[t->arrays++] = "ema";
}

/* One trainer for each optimizer. */
static accel_status_t open_trainers(struct shard *s, accel_error_t *err)
{
    const size_t n = s->o.optims > 0 ? (size_t)s->o.optims : 0;

    s->store.trainer = calloc(n + 1, sizeof(*s->store.trainer));
    if (!s->store.trainer)
        return accel_fail_nomem(err, "unit table", n * sizeof(*s->store.trainer));
    s->store.trainers = s->o.optims;
    for (int i = 0; i < s->store.trainers; i++)
        trainer_arrays(&s->store.trainer[i], &s->o.optim[i]);
    s->o.optim = NULL; /* the caller's list may go */
    return ACCEL_OK;
}

static accel_status_t unit_table(size_t bytes, accel_error_t *err)
{
    return accel_fail_nomem(err, "unit table", bytes);
}

/* The tables of units, and the scratch of steps. */
static accel_status_t open_tables(struct shard *s, const struct units *units,
                                  accel_error_t *err)
{
    const bool scales = shard_has_scaled_masters(s) || shard_has_narrow_gradients(s) ||
                        shard_has_scaled_state(s);
    const size_t n = (size_t)(unsigned)units->count;
    size_t params = 0;

    for (int i = 0; i < units->count; i++)
        params += (size_t)units->unit[i].param_count;
    s->layout.unit = calloc(n, sizeof(*s->layout.unit));
    s->store.undrawn = calloc(params + 1, sizeof(*s->store.undrawn));
    s->gather.fresh = calloc(n, sizeof(*s->gather.fresh));
    s->reducer.sums = calloc(n, sizeof(*s->reducer.sums));
    s->step.span = calloc(n, sizeof(*s->step.span));
    if (!s->layout.unit || !s->store.undrawn || !s->gather.fresh || !s->reducer.sums ||
        !s->step.span)
        return unit_table(n * sizeof(*s->layout.unit), err);
    s->step.units = n;
    s->step.sumsq = s->be->host_alloc(s->be, n * sizeof(*s->step.sumsq));
    if (!s->step.sumsq)
        return unit_table(n * sizeof(*s->step.sumsq), err);
    s->step.range = calloc(2 * params + n, sizeof(*s->step.range));
    if (scales)
        s->step.scaled = calloc(2 * params + n, sizeof(*s->step.scaled));
    s->step.step = calloc(params + 1, sizeof(*s->step.step));
    s->step.step_like = calloc(params + 1, sizeof(*s->step.step_like));
    if (!s->step.range || !s->step.step || !s->step.step_like ||
        (scales && !s->step.scaled))
        return unit_table(2 * params * sizeof(*s->step.range), err);
    return ACCEL_OK;
}

static void set_rules(struct shard *s)
{
    const struct precision *p = &s->o.precision;
    const bool cut = s->o.strategy != SHARD_NONE;

    s->layout.rules = (struct shard_rules){
        .ranks = s->world,
        .rank = s->rank,
        .cut = cut,
        .cut_gradients = cut,
        .keep = s->o.strategy == SHARD_GRAD_OP || s->o.strategy == SHARD_HYBRID_ZERO2,
        .offloaded = s->offloaded,
        .streamed = s->offloaded,
        .device = s->be->device,
        .narrow_copies =
            !cut && s->world > 1 && p->narrow_copies && !s->o.local ? s->world : 0,
        .masters = p->masters,
        .gradients = p->gradients,
    };
}

/* Places all units, and counts the bytes of each kind. */
static accel_status_t lay_out(struct shard *s, const struct units *units,
                              accel_error_t *err)
{
    struct shard_layout *l = &s->layout;
    accel_status_t st;

    set_rules(s);
    ACCEL_CHECK(st, open_tables(s, units, err));
    ACCEL_CHECK(st, shard_coded_open(s, units, err));
    for (int i = 0; i < units->count; i++) {
        const struct unit *def = &units->unit[i];
        const struct plan_types *t = &def->types;

        l->unit[i] =
            (struct shard_unit){ .def = def,
                                 .elems = def->elems,
                                 .frozen = def->frozen,
                                 .optim = def->optim,
                                 .type =
                                     t->own ? t->parameters : s->o.precision.parameters,
                                 .reduce = t->own ? t->reduce : s->o.precision.reduce };
        if (!shard_layout_add(l, &l->unit[i]))
            return accel_fail(err, A0618, "use a smaller model",
                              "unit '%s' is too large: %lld elements", def->name,
                              (long long)def->elems);
    }
    shard_layout_end(l);
    for (int i = 0; i < s->store.trainers; i++) {
        struct shard_trainer *t = &s->store.trainer[i];

        t->state_elems = l->state_elems[i];
        for (int k = 0; k < t->arrays; k++)
            l->memory.moments += shard_state_bytes(t, k);
    }
    shard_close_units(s);
    return ACCEL_OK;
}

/* Memory where the masters live: the backend's, or page-locked memory of the host. */
static accel_status_t alloc_home(struct shard *s, enum backend_memory kind,
                                 size_t bytes, void **data_out, accel_error_t *err)
{
    char size[32];

    if (!s->offloaded)
        return s->be->alloc(s->be, kind, bytes, data_out, err);
    *data_out = bytes ? s->be->host_alloc(s->be, bytes) : NULL;
    if (*data_out || !bytes)
        return ACCEL_OK;
    return accel_fail(
        err, A0001, "use more ranks or nodes, or request more host memory (--mem)",
        "out of host memory: page-locked %s of offloaded shards need %s",
        backend_memory_name(kind), format_bytes((double)bytes, size, sizeof(size)));
}

static void free_home(struct shard *s, void *p, size_t bytes)
{
    if (!s->offloaded)
        s->be->free(s->be, p);
    else if (p)
        s->be->host_free(s->be, p, bytes);
}

static accel_status_t alloc_state(struct shard *s, struct shard_trainer *t,
                                  accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int k = 0; k < t->arrays && !st; k++)
        st = alloc_home(s, MEMORY_MOMENTS, shard_state_bytes(t, k), &t->state[k], err);
    return st;
}

/* The copy of stored elements in another dtype than that of masters: to be used
 * (resident), or to gather from (offloaded). */
static accel_status_t alloc_copy(struct shard *s, accel_error_t *err)
{
    void *p = NULL;
    accel_status_t st = ACCEL_OK;

    if (s->layout.copy_bytes && (s->layout.resident || s->offloaded))
        st = alloc_home(s, MEMORY_GATHERED, s->layout.copy_bytes, &p, err);
    s->gather.copy = p;
    return st;
}

/* Reserves the communicators' scratch for sums of the largest unit, so that it does not
 * grow in a step. */
static accel_status_t reserve_sums(struct shard *s, accel_error_t *err)
{
    const struct shard_layout *l = &s->layout;
    bool scatter = l->memory.reduce_buffer > 0 || l->memory.wire_buffer > 0;
    const size_t ranks = scatter || s->o.strategy != SHARD_NONE ? (size_t)s->world : 1;
    const size_t sent = (size_t)shard_powersgd_sent(s);
    size_t own = (size_t)l->largest_trained / ranks;
    accel_status_t st = ACCEL_OK;

    own = own > sent ? own : sent;
    s->reducer.sum_most = (int64_t)own;
    if (s->world > 1 && !scatter)
        st = comm_reserve(s->reduce_data, false, own, ACCEL_F32, err);
    for (int i = 0; i < l->rings && scatter && s->world > 1 && st == ACCEL_OK; i++) {
        const size_t part = (size_t)l->ring[i].largest_trained / ranks;

        st = comm_reserve(s->reduce_data, true, part > sent ? part : sent,
                          l->ring[i].reduce_type, err);
    }
    if (st == ACCEL_OK && s->copies)
        st = comm_reserve(s->copies, false, own, ACCEL_F32, err);
    return st;
}

static accel_status_t alloc_gradients(struct shard *s, accel_error_t *err)
{
    void *p = NULL;
    accel_status_t st =
        alloc_home(s, MEMORY_GRADIENTS, s->layout.memory.gradient_shard, &p, err);

    if (shard_has_narrow_gradients(s))
        s->store.narrow_grad = p;
    else
        s->store.grad = p;
    return st;
}

/* Memory that no peer reads. `before`: how this rank fared so far, with its error in
 * *err. All ranks learn whether all have theirs: one that fails alone would leave the
 * others waiting in the next collective. */
static accel_status_t alloc_private(struct shard *s, accel_status_t before,
                                    accel_error_t *err)
{
    const struct shard_memory *m = &s->layout.memory;
    size_t need = m->master + m->moments + m->gradient_shard;
    accel_error_t e = { 0 };
    accel_status_t failed = before;
    void *p = NULL;
    int64_t any;

    s->store.grad_in_window = s->o.strategy == SHARD_NONE && s->world > 1;
    ACCEL_TRY(failed, alloc_home(s, MEMORY_PARAMETERS, m->master, &p, &e));
    s->store.master = p;
    for (int i = 0; i < s->store.trainers && !failed; i++)
        failed = alloc_state(s, &s->store.trainer[i], &e);
    if (!s->store.grad_in_window && !failed)
        failed = alloc_gradients(s, &e);
    ACCEL_TRY(failed, alloc_copy(s, &e));
    ACCEL_TRY(failed, shard_coded_alloc(s, &e));
    ACCEL_TRY(failed, shard_powersgd_open(s, &e));
    ACCEL_TRY(failed, shard_open_mean(s, &e));
    ACCEL_TRY(failed, reserve_sums(s, &e));
    if (s->home->device && !failed) {
        s->store.stage = s->be->host_alloc(s->be, SHARD_STAGE_BYTES);
        if (!s->store.stage)
            failed = accel_fail_nomem(&e, "page-locked memory", SHARD_STAGE_BYTES);
    }
    any = failed != ACCEL_OK;
    if (comm_size(s->comm) > 1) {
        accel_status_t st = comm_all_reduce(s->comm, &any, 1, ACCEL_I64, COMM_MAX, err);

        if (st)
            return st;
    }
    if (before)
        return before;
    /* a device's own text says what holds its memory */
    if (failed && s->be->device) {
        if (err)
            *err = e;
        return failed;
    }
    if (failed)
        return accel_fail_nomem(err, "parameters, moments and gradients of this rank",
                                need);
    if (any)
        return accel_fail(err, A0619, "use more ranks, FULL_SHARD or a smaller model",
                          "another rank is out of memory for its shard");
    return ACCEL_OK;
}

/* Memory that peers read comes from comm_alloc, which saves them one copy. The only
 * rank of a world has no peers, and on a device no collectives: the backend's
 * memory serves. */
static accel_status_t alloc_shared(struct shard *s, struct comm *c,
                                   enum backend_memory kind, size_t bytes,
                                   void **data_out, accel_error_t *err)
{
    return s->world > 1 ? comm_alloc(c, kind, bytes, data_out, err)
                        : s->be->alloc(s->be, kind, bytes, data_out, err);
}

/* What comm_alloc gave goes with the communicator. */
static void free_shared(struct shard *s, void *p)
{
    if (s->world == 1)
        s->be->free(s->be, p);
}

/* The memory that peers read: gradients (NO_SHARD), gather slots, reduce buffer.
 * Collective through comm_alloc, so only after alloc_private's agreement. */
static accel_status_t alloc_window(struct shard *s, accel_error_t *err)
{
    const struct shard_memory *m = &s->layout.memory;
    accel_status_t st = ACCEL_OK;
    void *p;

    if (s->store.grad_in_window) {
        ACCEL_CHECK(st, comm_alloc(s->reduce_data, MEMORY_GRADIENTS, m->gradient_shard,
                                   &p, err));
        s->store.grad = p;
    }
    if (!s->layout.resident) {
        ACCEL_CHECK(
            st, alloc_shared(s, s->data, MEMORY_GATHERED, m->gather_slots, &p, err));
        s->gather.gathered = p;
    }
    if (m->wire_buffer) {
        ACCEL_CHECK(st,
                    comm_alloc(s->reduce_data, MEMORY_REDUCE, m->wire_buffer, &p, err));
        s->reducer.wire = p;
    }
    if (m->reduce_buffer) {
        ACCEL_CHECK(st, alloc_shared(s, s->reduce_data, MEMORY_REDUCE, m->reduce_buffer,
                                     &p, err));
        s->reducer.buffer = p;
        if (s->layout.piece_bytes)
            s->reducer.piece =
                s->reducer.buffer +
                (m->reduce_buffer - s->layout.piece_bytes) / sizeof(float);
    }
    return ACCEL_OK;
}

/* Slots and events. `slots` goes back to 0 on failure, for close_slots. */
static accel_status_t open_slots(struct shard *s, accel_error_t *err)
{
    s->gather.slots = s->layout.keep ? s->layout.units : 2 * s->layout.rings;
    s->gather.slot = calloc((size_t)s->gather.slots, sizeof(*s->gather.slot));
    if (!s->gather.slot) {
        size_t bytes = (size_t)s->gather.slots * sizeof(*s->gather.slot);

        s->gather.slots = 0;
        return accel_fail_nomem(err, "unit table", bytes);
    }
    for (int i = 0; i < s->gather.slots; i++) {
        s->gather.slot[i].unit = -1;
        s->gather.slot[i].ready = s->be->event_new(s->be);
        s->gather.slot[i].read = s->be->event_new(s->be);
    }
    s->gather.updated = s->be->event_new(s->be);
    s->gather.boxes_read = s->be->event_new(s->be);
    s->reducer.computed = s->be->event_new(s->be);
    s->reducer.reduced = s->be->event_new(s->be);
    return ACCEL_OK;
}

static void close_slots(struct shard *s)
{
    for (int i = 0; i < s->gather.slots; i++) {
        s->be->event_free(s->be, s->gather.slot[i].ready);
        s->be->event_free(s->be, s->gather.slot[i].read);
    }
    s->be->event_free(s->be, s->gather.updated);
    s->be->event_free(s->be, s->gather.boxes_read);
    s->be->event_free(s->be, s->reducer.computed);
    s->be->event_free(s->be, s->reducer.reduced);
    free(s->gather.slot);
}

/* Of copies, a group of one rank is none. NO_SHARD is never offloaded. */
accel_status_t shard_open(struct shard **shard_out, struct comm *c,
                          const struct shard_options *o, const struct units *units,
                          accel_error_t *err)
{
    struct shard *s = NULL;
    accel_status_t st;

    if (!accel_dtype_is_float(o->precision.parameters) ||
        (!accel_dtype_is_float(o->precision.reduce) &&
         !wire_is_scaled(o->precision.reduce)))
        return accel_fail(err, A0606, "use float32, bfloat16 or float16",
                          "parameters in %s with gradients in %s are not supported",
                          accel_dtype_name(o->precision.parameters),
                          accel_dtype_name(o->precision.reduce));
    if (o->precision.masters != ACCEL_F32 &&
        (o->precision.masters == ACCEL_F16
             ? o->precision.parameters != ACCEL_BF16
             : o->precision.masters != o->precision.parameters))
        return accel_fail(err, A0606, "use float32 masters",
                          "masters in %s with parameters in %s are not supported",
                          accel_dtype_name(o->precision.masters),
                          accel_dtype_name(o->precision.parameters));
    if (o->precision.gradients != ACCEL_F32 &&
        (o->home ||
         (o->strategy == SHARD_NONE && comm_size(o->data ? o->data : c) > 1)))
        return accel_fail(err, A0606, "use float32 gradients",
                          "gradients that rest in %s are not supported %s",
                          accel_dtype_name(o->precision.gradients),
                          o->home ? "in host memory" : "in whole copies");
    if (units->count < 1)
        return accel_fail(err, A0609, "declare parameters with accel_param",
                          "the model has no parameters");
    s = calloc(1, sizeof(*s));
    if (!s)
        return accel_fail_nomem(err, "shard state", sizeof(*s));
    s->comm = c;
    s->data = o->data ? o->data : c;
    s->reduce_data = o->reduce ? o->reduce : s->data;
    s->copies = o->copies && comm_size(o->copies) > 1 ? o->copies : NULL;
    s->be = o->backend;
    s->offloaded = o->home && o->strategy != SHARD_NONE;
    s->home = s->offloaded ? o->home : o->backend;
    s->o = *o;
    s->rank = comm_rank(s->data);
    s->world = comm_size(s->data);
    /* nothing is to be drawn before shard_init */
    s->store.all_drawn = true;
    s->order.last = -1;
    s->reducer.grad_scale = s->reducer.step_scale = s->reducer.loss_scale = 1.0f;
    st = open_trainers(s, err);
    ACCEL_TRY(st, lay_out(s, units, err));
    ACCEL_TRY(st, open_slots(s, err));
    st = alloc_private(s, st, err);
    ACCEL_TRY(st, alloc_window(s, err));
    if (st)
        shard_close(s);
    else
        *shard_out = s;
    return st;
}

const struct backend *shard_home(const struct shard *s)
{
    return s->home;
}

/* Also what shard_open has left half open. */
void shard_close(struct shard *s)
{
    const struct shard_memory *m;
    accel_error_t ignored;

    if (!s)
        return;
    m = &s->layout.memory;
    s->be->sync(s->be, &ignored); /* nothing works on what is freed here */
    close_slots(s);
    free_home(s, s->store.master, m->master);
    shard_powersgd_close(s);
    s->be->free(s->be, s->reducer.mean_room);
    for (int i = 0; i < s->store.trainers; i++)
        for (int k = 0; k < s->store.trainer[i].arrays; k++)
            free_home(s, s->store.trainer[i].state[k],
                      shard_state_bytes(&s->store.trainer[i], k));
    free(s->store.trainer);
    if (!s->store.grad_in_window)
        free_home(s,
                  s->store.narrow_grad ? (void *)s->store.narrow_grad : s->store.grad,
                  m->gradient_shard);
    free_home(s, s->gather.copy, m->narrow_master);
    free_shared(s, s->gather.gathered);
    free_shared(s, s->reducer.buffer);
    if (s->store.stage)
        s->be->host_free(s->be, s->store.stage, SHARD_STAGE_BYTES);
    free(s->order.unit);
    shard_coded_close(s);
    free(s->store.undrawn);
    free(s->gather.fresh);
    free(s->reducer.sums);
    free(s->layout.unit);
    free(s->step.span);
    if (s->step.sumsq)
        s->be->host_free(s->be, s->step.sumsq, s->step.units * sizeof(*s->step.sumsq));
    free(s->step.range);
    free(s->step.scaled);
    free(s->step.step);
    free((void *)s->step.step_like);
    free(s);
}

void shard_memory(const struct shard *s, struct shard_memory *memory_out)
{
    *memory_out = s->layout.memory;
}

/* ---- residency ------------------------------------------------------------------- */

/* Copies what units of other dtypes than the masters' store: neighbours of one dtype in
 * one pass. */
static void copy_masters(struct shard *s)
{
    for (int i = 0, end; i < s->layout.units; i = end) {
        const struct shard_unit *u = &s->layout.unit[i];
        int64_t n = 0;

        for (end = i; end < s->layout.units && s->layout.unit[end].type == u->type;
             end++)
            n += s->layout.unit[end].stored;
        if (u->type != s->o.precision.masters)
            s->be->narrow(s->be, s->gather.copy + u->copy_at, u->type,
                          shard_master_at(s, u->at), n);
    }
}

/* A unit that is whole here. Copies are made when the first unit is wanted after an
 * update. */
static void *resident_unit(struct shard *s, const struct shard_unit *u)
{
    if (!s->gather.copied && s->gather.copy)
        copy_masters(s);
    s->gather.copied = true;
    return u->type == s->o.precision.masters ? shard_master_at(s, u->at)
                                             : s->gather.copy + u->copy_at;
}

static accel_status_t bad_unit(int unit, int units, accel_error_t *err)
{
    return accel_fail(err, A0003, "report this with the output of `accel env`",
                      "unit %d of %d does not exist or is not trained", unit, units);
}

/* The residency table. What is resident needs no slot and no `done`. */
static accel_status_t want(void *user, int unit, void **data_out, accel_error_t *err)
{
    struct shard *s = user;

    if (unit < 0 || unit >= s->layout.units)
        return bad_unit(unit, s->layout.units, err);
    shard_draw(s);
    if (s->layout.resident)
        *data_out = resident_unit(s, &s->layout.unit[unit]);
    else
        return shard_ring_want(s, unit, data_out, err);
    return ACCEL_OK;
}

static void done(void *user, int unit)
{
    struct shard *s = user;

    if (!s->layout.resident)
        shard_ring_done(s, unit);
}

/* Units without a trained parameter have no gradient to ask for. */
static accel_status_t grad(void *user, int unit, float **grad_out, accel_error_t *err)
{
    struct shard *s = user;

    if (unit < 0 || unit >= s->layout.units || s->layout.unit[unit].grad_at < 0)
        return bad_unit(unit, s->layout.units, err);
    return shard_grad(s, unit, grad_out, err);
}

struct residency shard_residency(struct shard *s)
{
    return (struct residency){ .user = s,
                               .want = want,
                               .done = done,
                               .grad = grad,
                               .changed = &s->gather.changed };
}
