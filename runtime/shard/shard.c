/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes the sharded state: the layout of every unit, all memory, and the
 * residency table through which the tape requests units. Allocates exactly what
 * plan_compute predicts; nothing is allocated during a step.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

#include "numbers/wire.h"
#include "plan/plan.h"

/* The unit's ranges on this rank, in each of the flat arrays. The trained range may end
 * inside this rank's part, before it, or behind it. */
static void place_unit(struct shard *s, struct shard_unit *u)
{
    bool is_cut = s->o.strategy != SHARD_NONE;
    int64_t trained;

    u->own = u->padded / s->world;
    u->first = is_cut ? s->rank * u->own : 0;
    u->stored = is_cut ? u->own : u->padded;
    s->all_elems += u->padded;
    u->at = s->stored_elems;
    s->stored_elems += u->stored;
    trained = shard_trained_elems(u) - u->first;
    u->state = trained < 0 ? 0 : trained < u->stored ? trained : u->stored;
    if (u->def->optim >= 0) {
        u->state_at = s->trainer[u->def->optim].state_elems;
        s->trainer[u->def->optim].state_elems += u->state;
    }
    u->grad_at = shard_trained_elems(u) > 0 ? s->grad_elems : -1;
    s->grad_elems += u->grad_at >= 0 ? u->stored : 0;
}

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

    s->trainer = calloc(n + 1, sizeof(*s->trainer));
    if (!s->trainer)
        return accel_fail_nomem(err, "unit table", n * sizeof(*s->trainer));
    s->trainers = s->o.optims;
    for (int i = 0; i < s->trainers; i++)
        trainer_arrays(&s->trainer[i], &s->o.optim[i]);
    s->o.optim = NULL; /* the caller's list may go */
    return ACCEL_OK;
}

/* The ring of units with these types, new where this is the first. */
static struct shard_ring *ring_for(struct shard *s, struct shard_unit *u)
{
    for (u->ring = 0; u->ring < s->rings; u->ring++)
        if (s->ring[u->ring].type == u->type &&
            s->ring[u->ring].reduce_type == u->reduce)
            return &s->ring[u->ring];
    s->ring[s->rings] =
        (struct shard_ring){ .type = u->type, .reduce_type = u->reduce, .open = -1 };
    return &s->ring[s->rings++];
}

/* The bytes of the unit when it is gathered, and the largest ones. */
static void count_unit(struct shard *s, int unit)
{
    struct shard_unit *u = &s->unit[unit];
    const int64_t elem = (int64_t)accel_dtype_bytes(u->type);
    struct shard_ring *r = ring_for(s, u);
    size_t bytes;

    r->units++;
    if (u->grad_at >= 0 && u->padded > r->largest_trained)
        r->largest_trained = u->padded;
    u->copy_at = s->copy_bytes;
    if (u->type != s->o.precision.masters)
        s->copy_bytes += (size_t)(u->stored * elem);
    u->part_bytes =
        (size_t)plan_part_bytes(shard_codes(s, unit), unit, u->padded, s->world, elem);
    u->all_at = s->all_bytes;
    bytes = u->part_bytes * (size_t)s->world;
    s->all_bytes += bytes;
    if (bytes > r->largest) {
        r->second = r->largest;
        r->largest = bytes;
    } else if (bytes > r->second) {
        r->second = bytes;
    }
}

/* Places all units and finds the largest ones. 64 times the elements of all units still
 * fit an int64_t. */
static accel_status_t lay_out(struct shard *s, const struct units *units,
                              accel_error_t *err)
{
    const bool scales = shard_has_scaled_masters(s) || shard_has_narrow_gradients(s) ||
                        shard_has_scaled_state(s);
    size_t params = 0;
    accel_status_t st;

    s->unit = calloc((size_t)units->count, sizeof(*s->unit));
    s->span = calloc((size_t)units->count, sizeof(*s->span));
    s->ring = calloc((size_t)units->count, sizeof(*s->ring));
    if (!s->unit || !s->span || !s->ring)
        return accel_fail_nomem(err, "unit table",
                                (size_t)units->count * sizeof(*s->unit));
    s->units = units->count;
    s->sumsq = s->be->host_alloc(s->be, (size_t)s->units * sizeof(*s->sumsq));
    if (!s->sumsq)
        return accel_fail_nomem(err, "unit table",
                                (size_t)s->units * sizeof(*s->sumsq));
    for (int i = 0; i < s->units; i++)
        params += (size_t)units->unit[i].param_count;
    s->range = calloc(2 * params + (size_t)(unsigned)s->units, sizeof(*s->range));
    if (scales)
        s->scaled = calloc(2 * params + (size_t)(unsigned)s->units, sizeof(*s->scaled));
    s->step = calloc(params + 1, sizeof(*s->step));
    s->step_like = calloc(params + 1, sizeof(*s->step_like));
    if (!s->range || !s->step || !s->step_like || (scales && !s->scaled))
        return accel_fail_nomem(err, "unit table", 2 * params * sizeof(*s->range));
    ACCEL_CHECK(st, shard_coded_open(s, units, err));
    for (int i = 0; i < s->units; i++) {
        const struct plan_types *t = &units->unit[i].types;
        struct shard_unit *u = &s->unit[i];

        u->def = &units->unit[i];
        u->type = t->own ? t->parameters : s->o.precision.parameters;
        u->reduce = t->own ? t->reduce : s->o.precision.reduce;
        u->undrawn = calloc((size_t)u->def->param_count + 1, sizeof(*u->undrawn));
        if (!u->undrawn)
            return accel_fail_nomem(err, "unit table", (size_t)u->def->param_count);
        u->padded = plan_padded_elems(u->def->elems, s->world);
        if (u->padded < 0 || u->padded > INT64_MAX / 64 - s->all_elems)
            return accel_fail(err, A0618, "use a smaller model",
                              "unit '%s' is too large: %lld elements", u->def->name,
                              (long long)u->def->elems);
        place_unit(s, u);
        count_unit(s, i);
    }
    return ACCEL_OK;
}

/* Elements of the largest unit that is not wholly frozen. */
static size_t largest_trained(const struct shard *s)
{
    int64_t most = 0;

    for (int i = 0; i < s->rings; i++)
        if (s->ring[i].largest_trained > most)
            most = s->ring[i].largest_trained;
    return (size_t)most;
}

/* Room for the largest part of a gradient that leaves the device, or the float32 that
 * it rests as. */
static size_t piece_bytes(const struct shard *s)
{
    return largest_trained(s) / (size_t)s->world * sizeof(float);
}

/* What all rings take together. */
static void count_rings(struct shard *s, bool whole)
{
    const bool narrow = s->o.strategy == SHARD_NONE && s->world > 1 &&
                        s->o.precision.narrow_copies && !s->o.local;
    const size_t world = (size_t)s->world;
    struct shard_memory *m = &s->memory;

    for (int i = 0; i < s->rings; i++) {
        struct shard_ring *r = &s->ring[i];
        const size_t trained = (size_t)r->largest_trained;
        const size_t wire = wire_bytes(trained / world, r->reduce_type) * world;

        r->bytes = r->largest + r->second;
        if (!s->resident && !s->keep)
            m->gather_slots += r->bytes;
        if (!whole || shard_has_narrow_gradients(s))
            m->reduce_buffer += trained * sizeof(float);
        if (narrow && wire > m->wire_buffer)
            m->wire_buffer = wire;
    }
}

/* Chooses how parameters become present and counts the bytes of each kind, as
 * plan.c does. */
static void count_memory(struct shard *s)
{
    struct shard_memory *m = &s->memory;
    bool whole = (s->o.strategy == SHARD_NONE || s->world == 1) && !s->offloaded;

    const bool held = whole && s->coded.n > 0;

    s->resident = whole && !held && !shard_has_scaled_masters(s);
    s->keep = held || (!whole && (s->o.strategy == SHARD_GRAD_OP ||
                                  s->o.strategy == SHARD_HYBRID_ZERO2));
    m->master = shard_masters_bytes(s);
    m->gradient_shard = shard_has_narrow_gradients(s)
                            ? scaled_bytes(s->grad_elems, s->o.precision.gradients)
                            : (size_t)s->grad_elems * sizeof(float);
    for (int i = 0; i < s->trainers; i++)
        for (int k = 0; k < s->trainer[i].arrays; k++)
            m->moments += shard_state_bytes(&s->trainer[i], k);
    m->gather_slots = s->resident ? s->copy_bytes : s->keep ? s->all_bytes : 0;
    count_rings(s, whole);
    if (s->offloaded || shard_has_narrow_gradients(s))
        m->reduce_buffer += piece_bytes(s);
    if (s->offloaded)
        m->narrow_master = s->copy_bytes;
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

    if (s->copy_bytes && (s->resident || s->offloaded))
        st = alloc_home(s, MEMORY_GATHERED, s->copy_bytes, &p, err);
    s->copy = p;
    return st;
}

/* Reserves the communicators' scratch for sums of the largest unit, so that it does not
 * grow in a step. */
static accel_status_t reserve_sums(struct shard *s, accel_error_t *err)
{
    bool scatter = s->memory.reduce_buffer > 0 || s->memory.wire_buffer > 0;
    const size_t ranks = scatter || s->o.strategy != SHARD_NONE ? (size_t)s->world : 1;
    const size_t sent = (size_t)shard_powersgd_sent(s);
    size_t own = largest_trained(s) / ranks;
    accel_status_t st = ACCEL_OK;

    own = own > sent ? own : sent;
    s->sum_most = (int64_t)own;
    if (s->world > 1 && !scatter)
        st = comm_reserve(s->reduce_data, false, own, ACCEL_F32, err);
    for (int i = 0; i < s->rings && scatter && s->world > 1 && st == ACCEL_OK; i++) {
        const size_t part = (size_t)s->ring[i].largest_trained / ranks;

        st = comm_reserve(s->reduce_data, true, part > sent ? part : sent,
                          s->ring[i].reduce_type, err);
    }
    if (st == ACCEL_OK && s->copies)
        st = comm_reserve(s->copies, false, own, ACCEL_F32, err);
    return st;
}

static accel_status_t alloc_gradients(struct shard *s, accel_error_t *err)
{
    void *p = NULL;
    accel_status_t st =
        alloc_home(s, MEMORY_GRADIENTS, s->memory.gradient_shard, &p, err);

    if (shard_has_narrow_gradients(s))
        s->narrow_grad = p;
    else
        s->grad = p;
    return st;
}

/* Memory that no peer reads. `before`: how this rank fared so far, with its error in
 * *err. All ranks learn whether all have theirs: one that fails alone would leave the
 * others waiting in the next collective. */
static accel_status_t alloc_private(struct shard *s, accel_status_t before,
                                    accel_error_t *err)
{
    size_t need = s->memory.master + s->memory.moments + s->memory.gradient_shard;
    accel_error_t e = { 0 };
    accel_status_t failed = before;
    void *p = NULL;
    int64_t any;

    s->grad_in_window = s->o.strategy == SHARD_NONE && s->world > 1;
    if (!failed)
        failed = alloc_home(s, MEMORY_PARAMETERS, s->memory.master, &p, &e);
    s->master = p;
    for (int i = 0; i < s->trainers && !failed; i++)
        failed = alloc_state(s, &s->trainer[i], &e);
    if (!s->grad_in_window && !failed)
        failed = alloc_gradients(s, &e);
    if (!failed)
        failed = alloc_copy(s, &e);
    if (!failed)
        failed = shard_coded_alloc(s, &e);
    if (!failed)
        failed = shard_powersgd_open(s, &e);
    if (!failed)
        failed = shard_open_mean(s, &e);
    if (!failed)
        failed = reserve_sums(s, &e);
    if (s->home->device && !failed) {
        s->stage = s->be->host_alloc(s->be, SHARD_STAGE_BYTES);
        if (!s->stage)
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

/* Regions and reduce buffers lie one behind the other. */
static void place_rings(struct shard *s)
{
    char *memory = s->gathered;
    float *reduce = s->reduce;

    for (int i = 0; i < s->rings; i++) {
        struct shard_ring *r = &s->ring[i];

        r->memory = memory;
        r->reduce = reduce;
        memory = memory ? memory + r->bytes : NULL;
        reduce = reduce ? reduce + r->largest_trained : NULL;
    }
}

/* The memory that peers read: gradients (NO_SHARD), gather slots, reduce buffer.
 * Collective through comm_alloc, so only after alloc_private's agreement. */
static accel_status_t alloc_window(struct shard *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    void *p;

    if (s->grad_in_window) {
        ACCEL_CHECK(st, comm_alloc(s->reduce_data, MEMORY_GRADIENTS,
                                   s->memory.gradient_shard, &p, err));
        s->grad = p;
    }
    if (!s->resident) {
        ACCEL_CHECK(st, alloc_shared(s, s->data, MEMORY_GATHERED,
                                     s->memory.gather_slots, &p, err));
        s->gathered = p;
    }
    if (s->memory.wire_buffer) {
        ACCEL_CHECK(st, comm_alloc(s->reduce_data, MEMORY_REDUCE, s->memory.wire_buffer,
                                   &p, err));
        s->wire = p;
    }
    if (s->memory.reduce_buffer) {
        ACCEL_CHECK(st, alloc_shared(s, s->reduce_data, MEMORY_REDUCE,
                                     s->memory.reduce_buffer, &p, err));
        s->reduce = p;
        if (s->offloaded || shard_has_narrow_gradients(s))
            s->piece =
                s->reduce + (s->memory.reduce_buffer - piece_bytes(s)) / sizeof(float);
    }
    place_rings(s);
    return ACCEL_OK;
}

/* Slots and events. `slots` goes back to 0 on failure, for close_slots. */
static accel_status_t open_slots(struct shard *s, accel_error_t *err)
{
    s->slots = s->keep ? s->units : 2 * s->rings;
    s->slot = calloc((size_t)s->slots, sizeof(*s->slot));
    if (!s->slot) {
        size_t bytes = (size_t)s->slots * sizeof(*s->slot);

        s->slots = 0;
        return accel_fail_nomem(err, "unit table", bytes);
    }
    for (int i = 0; i < s->slots; i++) {
        s->slot[i].unit = -1;
        s->slot[i].ready = s->be->event_new(s->be);
        s->slot[i].read = s->be->event_new(s->be);
    }
    s->updated = s->be->event_new(s->be);
    s->boxes_read = s->be->event_new(s->be);
    s->computed = s->be->event_new(s->be);
    s->reduced = s->be->event_new(s->be);
    return ACCEL_OK;
}

static void close_slots(struct shard *s)
{
    for (int i = 0; i < s->slots; i++) {
        s->be->event_free(s->be, s->slot[i].ready);
        s->be->event_free(s->be, s->slot[i].read);
    }
    s->be->event_free(s->be, s->updated);
    s->be->event_free(s->be, s->boxes_read);
    s->be->event_free(s->be, s->computed);
    s->be->event_free(s->be, s->reduced);
    free(s->slot);
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
    s->all_drawn = true;
    s->last_unit = -1;
    s->grad_scale = s->step_scale = s->loss_scale = 1.0f;
    st = open_trainers(s, err);
    ACCEL_TRY(st, lay_out(s, units, err));
    if (!st)
        count_memory(s);
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
    accel_error_t ignored;

    if (!s)
        return;
    s->be->sync(s->be, &ignored); /* nothing works on what is freed here */
    close_slots(s);
    free_home(s, s->master, s->memory.master);
    shard_powersgd_close(s);
    s->be->free(s->be, s->mean_room);
    for (int i = 0; i < s->trainers; i++)
        for (int k = 0; k < s->trainer[i].arrays; k++)
            free_home(s, s->trainer[i].state[k], shard_state_bytes(&s->trainer[i], k));
    free(s->trainer);
    if (!s->grad_in_window)
        free_home(s, s->narrow_grad ? (void *)s->narrow_grad : s->grad,
                  s->memory.gradient_shard);
    free_home(s, s->copy, s->memory.narrow_master);
    free_shared(s, s->gathered);
    free(s->ring);
    free_shared(s, s->reduce);
    if (s->stage)
        s->be->host_free(s->be, s->stage, SHARD_STAGE_BYTES);
    free(s->order);
    shard_coded_close(s);
    for (int i = 0; i < s->units; i++)
        free(s->unit[i].undrawn);
    free(s->unit);
    free(s->span);
    if (s->sumsq)
        s->be->host_free(s->be, s->sumsq, (size_t)s->units * sizeof(*s->sumsq));
    free(s->range);
    free(s->scaled);
    free(s->step);
    free((void *)s->step_like);
    free(s);
}

void shard_memory(const struct shard *s, struct shard_memory *memory_out)
{
    *memory_out = s->memory;
}

/* ---- residency ------------------------------------------------------------------- */

/* Copies what units of other dtypes than the masters' store: neighbours of one dtype in
 * one pass. */
static void copy_masters(struct shard *s)
{
    for (int i = 0, end; i < s->units; i = end) {
        const struct shard_unit *u = &s->unit[i];
        int64_t n = 0;

        for (end = i; end < s->units && s->unit[end].type == u->type; end++)
            n += s->unit[end].stored;
        if (u->type != s->o.precision.masters)
            s->be->narrow(s->be, s->copy + u->copy_at, u->type,
                          shard_master_at(s, u->at), n);
    }
}

/* A unit that is whole here. Copies are made when the first unit is wanted after an
 * update. */
static void *resident_unit(struct shard *s, const struct shard_unit *u)
{
    if (!s->copied && s->copy)
        copy_masters(s);
    s->copied = true;
    return u->type == s->o.precision.masters ? shard_master_at(s, u->at)
                                             : s->copy + u->copy_at;
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

    if (unit < 0 || unit >= s->units)
        return bad_unit(unit, s->units, err);
    shard_draw(s);
    if (s->resident)
        *data_out = resident_unit(s, &s->unit[unit]);
    else
        return shard_ring_want(s, unit, data_out, err);
    return ACCEL_OK;
}

static void done(void *user, int unit)
{
    struct shard *s = user;

    if (!s->resident)
        shard_ring_done(s, unit);
}

/* Units without a trained parameter have no gradient to ask for. */
static accel_status_t grad(void *user, int unit, float **grad_out, accel_error_t *err)
{
    struct shard *s = user;

    if (unit < 0 || unit >= s->units || s->unit[unit].grad_at < 0)
        return bad_unit(unit, s->units, err);
    return shard_grad(s, unit, grad_out, err);
}

struct residency shard_residency(struct shard *s)
{
    return (struct residency){
        .user = s, .want = want, .done = done, .grad = grad, .changed = &s->changed
    };
}
