/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run will need, computed from sizes alone: memory per rank as shard/ allocates
 * it, bytes on the wire, bytes of a checkpoint. In: config, world, unit sizes. Out:
 * numbers. Never reads the environment, never allocates.
 */
#include "plan/plan.h"

#include "common/ckpt_sizes.h"
#include "numbers/scaled.h"
#include "numbers/wire.h"
#include "plan/exchange.h"
#include "precision/policy.h"

/* before the model, guessed */
#define GUESS_CONTEXT ((int64_t)768 << 20)
#define GUESS_NCCL    ((int64_t)512 << 20)
/* One part in this many of a device's memory is not given to what can be recomputed:
 * the driver rounds, and others use the device, too. */
#define SPARE_PARTS 16

enum sharding_strategy plan_strategy(const struct config *c)
{
    return config_strategy(c);
}

/* How many ranks share one copy of the state. */
static int cut_size(const struct plan_layout *l)
{
    return l->cut_optimizer ? l->shard * l->cp : 1;
}

/* Units are padded for the ranks that share them; without sharding for all ranks, as
 * shard/ does with its world. */
static int pad_ranks(const struct plan_input *in)
{
    const struct plan_layout *l = &in->layout;

    return l->cut_optimizer ? l->shard * l->cp : in->world / l->tp;
}

/* Ranks that hold copies of one part. */
static int copies(const struct plan_input *in)
{
    return in->world / in->layout.tp / cut_size(&in->layout);
}

/* Are whole copies summed in a narrow dtype? */
static bool narrow_copies(const struct plan_input *in)
{
    return !in->layout.cut_gradients && copies(in) > 1 &&
           precision_of(in->config).narrow_copies;
}

/* Are weights gathered as codes, or held so where one rank has all of them? Not from
 * host memory, nor are they known of the parts of tensor parallelism. */
static bool has_codes(const struct config *c, const struct plan_layout *l)
{
    const struct precision p = precision_of(c);
    const bool one = cut_size(l) == 1 && (l->cut_optimizer || l->replicate == 1);
    const bool offload = l->offload_params || l->offload_optimizer;

    return (one ? p.held : p.coded && cut_size(l) > 1) && l->tp == 1 && !offload;
}

bool plan_has_codes(const struct plan_input *in)
{
    return has_codes(in->config, &in->layout);
}

bool plan_holds_codes(const struct plan_input *in)
{
    return in->coded.n > 0 && cut_size(&in->layout) == 1 && plan_has_codes(in);
}

bool plan_rings_whole(const struct plan_input *in)
{
    const struct plan_layout *l = &in->layout;
    const bool offload = l->offload_params || l->offload_optimizer;

    return precision_of(in->config).masters == ACCEL_F16 && cut_size(l) == 1 &&
           !(offload && l->cut_optimizer) && !plan_holds_codes(in);
}

/* How the shards are laid out on the first rank: it holds the start of each unit, so no
 * rank has more optimizer state. */
static struct shard_rules rules_of(const struct plan_input *in)
{
    const struct plan_layout *l = &in->layout;
    const struct precision p = precision_of(in->config);

    return (struct shard_rules){
        .ranks = pad_ranks(in),
        .cut = l->cut_optimizer,
        .cut_gradients = l->cut_gradients,
        .keep = !plan_rings_whole(in) && (!l->cut_params || l->keep_gathered),
        .offloaded = l->offload_params || l->offload_optimizer,
        .streamed = l->offload_params,
        .narrow_copies = narrow_copies(in) ? copies(in) : 0,
        .device = in->device.present,
        .masters = p.masters,
        .gradients = p.gradients,
        .codes = plan_has_codes(in) ? in->coded : (struct plan_codes){ NULL, 0 },
    };
}

/* A unit as the layout takes it. */
static struct shard_unit unit_in(const struct plan_input *in, int unit)
{
    const struct precision p = precision_of(in->config);
    const struct plan_types *own =
        in->unit_types && in->unit_types[unit].own ? &in->unit_types[unit] : NULL;

    return (struct shard_unit){ .elems = in->unit_elems[unit],
                                .frozen = in->unit_frozen ? in->unit_frozen[unit] : 0,
                                .type = own ? own->parameters : p.parameters,
                                .reduce = own ? own->reduce : p.reduce };
}

/* The same with its sizes. */
static struct shard_unit unit_of(const struct plan_input *in, int unit)
{
    const struct shard_rules rules = rules_of(in);
    struct shard_unit u = unit_in(in, unit);

    shard_unit_size(&rules, unit, &u);
    return u;
}

/* Do both go through the same gather ring and reduce buffer? */
static bool same_types(const struct plan_input *in, int unit, int other)
{
    const struct shard_unit a = unit_in(in, unit), b = unit_in(in, other);

    return a.type == b.type && a.reduce == b.reduce;
}

/* The first unit with the types of this one. */
static int ring_of(const struct plan_input *in, int unit)
{
    int first = 0;

    while (!same_types(in, first, unit))
        first++;
    return first;
}

/* Elements of a unit's gradient; 0 when nothing in it is trained. */
static int64_t reduced_elems(const struct shard_unit *u)
{
    return u->trained > 0 ? u->padded : 0;
}

/* Whole units that are gathered in one step where two of a ring are at a time: each in
 * the forward, and again in the backward unless it is still there. Units are used as in
 * a transformer: unit 0 (the root) before and after all others, because the embedding
 * comes first and the head last. */
struct ring {
    int unit[2], newest;
};

/* The older slot is evicted. Pins need no place here: a transformer never uses more
 * than two units at once. `single`: the ring has one unit. Returns the bytes that it
 * takes to have the unit. */
static int64_t ring_want(struct ring *r, const struct plan_input *in, int unit,
                         bool single)
{
    int slot = r->unit[0] == unit ? 0 : r->unit[1] == unit ? 1 : -1;
    int64_t gathered = 0;

    if (slot < 0) {
        slot = single || r->unit[0] < 0 ? 0 : r->unit[1] < 0 ? 1 : !r->newest;
        r->unit[slot] = unit;
        gathered = (int64_t)unit_of(in, unit).part_bytes * pad_ranks(in);
    }
    r->newest = slot;
    return gathered;
}

/* What is gathered and reduced in one step. */
struct traffic {
    /* bytes of whole units, padded */
    int64_t gathered;
    /* their elements */
    int64_t reduced;
    /* of the reduced: from one rank to another */
    int64_t part_bytes;
};

/* Counts one reduction of a unit. */
static void reduce_unit(struct traffic *t, const struct plan_input *in, int unit)
{
    const struct shard_unit u = unit_of(in, unit);
    const int64_t elems = reduced_elems(&u);

    t->reduced += elems;
    t->part_bytes +=
        (int64_t)wire_bytes((size_t)(elems / cut_size(&in->layout)), u.reduce);
}

/* The traffic of the units that have the types of unit `first`. */
static void ring_traffic(const struct plan_input *in, int first, struct traffic *t)
{
    struct ring r = { .unit = { -1, -1 } };
    int units = 0;

    for (int u = first; u < in->units; u++)
        units += same_types(in, u, first);
    for (int a = 0; a < in->accumulate; a++) {
        for (int u = first; u < in->units; u++)
            if (same_types(in, u, first))
                t->gathered += ring_want(&r, in, u, units == 1);
        if (first == 0)
            t->gathered += ring_want(&r, in, 0, units == 1);
        for (int u = in->units - 1; u >= first; u--) {
            if (!same_types(in, u, first))
                continue;
            t->gathered += ring_want(&r, in, u, units == 1);
            reduce_unit(t, in, u);
        }
        if (first == 0 && units > 1)
            reduce_unit(t, in, 0);
    }
}

/* ---- what travels ---------------------------------------------------------------- */

/* Ranks of such a group on the node of the first rank, which stands for all. Ranks of a
 * node are numbered consecutively. */
static int on_node(const struct plan_input *in, int size, int stride)
{
    int n = stride > 0 ? (in->local_size + stride - 1) / stride : size;

    return n < size ? n : size;
}

/* Every rank sends `part` bytes to each of its peers; `near` ranks of the group are on
 * its node, itself included. */
static void send_bytes(struct plan_wire *w, int64_t part, int size, int near)
{
    w->node += part * (near - 1);
    w->network += part * (size - near);
}

/* The same, with 1/size of the elements for each. */
static void send_parts(struct plan_wire *w, int64_t elems, int64_t elem_bytes, int size,
                       int near)
{
    send_bytes(w, elems / size * elem_bytes, size, near);
}

/* Copies on the node of the first rank: sp lies inside the cut group,
 * replicas outside. */
static int copies_on_node(const struct plan_input *in)
{
    const struct plan_layout *l = &in->layout;
    struct plan_group far = plan_group_of(l, AXIS_REPLICATE);
    struct plan_group sp = plan_group_of(l, AXIS_SP);

    if (!l->cut_optimizer)
        return on_node(in, copies(in), l->tp);
    if (sp.size > 1 && far.stride >= in->local_size)
        return on_node(in, sp.size, sp.stride);
    return on_node(in, far.size, far.stride) * on_node(in, sp.size, sp.stride);
}

/* Between the blocks of a transformer, in forward and backward: sums over tp, keys and
 * values around the ring of cp, four exchanges over sp. */
static void send_activations(const struct plan_input *in, int64_t elem,
                             struct plan_wire *w)
{
    const struct plan_layout *l = &in->layout;
    struct plan_group cp = plan_group_of(l, AXIS_CP), sp = plan_group_of(l, AXIS_SP);
    int64_t times = in->layers * in->accumulate, ring;

    send_parts(w, in->hidden_elems * times * 4 * 2, elem, l->tp, on_node(in, l->tp, 1));
    send_parts(w, in->hidden_elems * times * 8, elem, sp.size,
               on_node(in, sp.size, sp.stride));
    ring = in->hidden_elems * times * 2 * 3 * (cp.size - 1) * elem;
    if ((int64_t)cp.size * cp.stride <= in->local_size)
        w->node += ring;
    else
        w->network += ring;
}

/* ---- what is held ---------------------------------------------------------------- */

/* Bytes of the optimizer state of n elements of unit u. */
static int64_t state_bytes(const struct plan_input *in, int u, int64_t n)
{
    const int each =
        in->unit_state ? in->unit_state[u] : plan_state_bytes(in->states, in->moments);

    return (n * each + PLAN_STATE_ELEMS - 1) / PLAN_STATE_ELEMS;
}

/* All units; *state_out: bytes of their optimizer state. */
static void add_units(const struct plan_input *in, struct shard_layout *l,
                      int64_t *state_out)
{
    *l = (struct shard_layout){ .rules = rules_of(in) };
    *state_out = 0;
    for (int i = 0; i < in->units; i++) {
        struct shard_unit u = unit_in(in, i);

        shard_layout_add(l, &u);
        *state_out += state_bytes(in, i, u.state);
    }
    shard_layout_end(l);
}

/* A narrow unit goes to its ranks in parts, and their sums come back. */
static void send_narrow(const struct plan_input *in, struct plan_wire *w)
{
    int64_t bytes = 0;

    for (int i = 0; i < in->units; i++) {
        const struct shard_unit u = unit_of(in, i);

        bytes +=
            2 * (int64_t)wire_bytes((size_t)(reduced_elems(&u) / copies(in)), u.reduce);
    }
    send_bytes(w, bytes, copies(in), copies_on_node(in));
}

/* Bytes on the wire per step; every collective sends parts directly, so a rank sends
 * (size - 1) / size of what is exchanged. */
static void wire(const struct plan_input *in, const struct shard_layout *s,
                 const struct precision *precision, struct plan_wire *w)
{
    const int64_t elem = (int64_t)accel_dtype_bytes(precision->parameters);
    const struct plan_layout *l = &in->layout;
    const int cut = cut_size(l), near = on_node(in, cut, l->sp * l->tp);
    const int64_t graded = l->cut_gradients ? s->grad_elems : s->grad_elems / cut;
    struct traffic t = { 0 };

    for (int u = 0; u < in->units; u++)
        if (ring_of(in, u) == u)
            ring_traffic(in, u, &t);
    /* gathered once, kept until the end of the step */
    if (l->keep_gathered)
        t.gathered = (int64_t)s->all_bytes;
    if (!l->cut_gradients) {
        t.reduced = t.part_bytes = 0;
        for (int u = 0; u < in->units; u++)
            reduce_unit(&t, in, u);
    }
    if (l->cut_optimizer) {
        send_parts(w, t.gathered, 1, cut, near);
        send_bytes(w, t.part_bytes, cut, near);
    }
    if (narrow_copies(in))
        send_narrow(in, w);
    else if (in->compressed.on)
        send_parts(w, in->compressed.sent_elems * 2, 4, copies(in), copies_on_node(in));
    else /* one float32 all-reduce of what each copy holds */
        send_parts(w, graded * 2, 4, copies(in), copies_on_node(in));
    send_activations(in, elem, w);
    if (l->offload_params)
        w->host = t.gathered / cut + t.reduced / cut * 4;
    else if (l->offload_optimizer)
        w->host = s->stored_elems * (elem + 4);
}

/* Are two units at a time gathered? Else all of them, until the weights change. */
static bool has_ring(const struct plan_layout *l)
{
    return l->cut_params && !l->keep_gathered &&
           (cut_size(l) > 1 || l->offload_params || l->offload_optimizer);
}

bool plan_keeps_codes(const struct config *c, const struct plan_layout *l)
{
    return precision_of(c).fp8 && c->fp8_weight_cache && !has_ring(l) &&
           !has_codes(c, l);
}

/* Bytes of gathered parameters. */
static int64_t gathered_bytes(const struct plan_input *in, const struct shard_layout *s,
                              const struct precision *precision)
{
    const struct plan_layout *l = &in->layout;
    int64_t bytes = (int64_t)(s->memory.gather_slots + s->memory.coded_room);

    if (!s->resident && !s->keep && l->offload_optimizer && !l->offload_params)
        /* the part to gather from */
        bytes += s->stored_elems * (int64_t)accel_dtype_bytes(precision->parameters);
    return bytes;
}

/* Scratch of a device's sums in rank order, of a gradient of n elements. */
static int64_t sum_of(const struct plan_input *in, size_t elems, accel_dtype_t t)
{
    const struct plan_layout *l = &in->layout;
    const bool scatter = l->cut_gradients || narrow_copies(in);
    const size_t ranks = (size_t)(l->cut_gradients ? cut_size(l) : in->world);

    if (!in->device.present || ranks < 2 || elems == 0)
        return 0;
    if (in->device.library_sums && !wire_is_scaled(t))
        return scatter ? (int64_t)wire_bytes(elems / ranks, t) : 0;
    return (int64_t)(scatter ? exchange_scatter_bytes(elems / ranks, t, ranks,
                                                      EXCHANGE_MOST)
                             : exchange_reduce_bytes(elems, 4, ranks, EXCHANGE_MOST));
}

/* Of a unit's gradient on its way to the shards, or of the whole gradient where every
 * rank stores everything. */
static int64_t sum_bytes(const struct plan_input *in)
{
    const int64_t sent = in->compressed.most_sent_elems;
    int64_t most = 0;

    for (int i = 0; i < in->units; i++) {
        const struct shard_unit u = unit_of(in, i);
        const int64_t own = reduced_elems(&u);
        const int64_t n = sum_of(in, (size_t)(sent > own ? sent : own), u.reduce);

        most = n > most ? n : most;
    }
    return most;
}

/* The same for copies of parts, which are summed once per step. */
static int64_t copies_sum_bytes(const struct plan_input *in,
                                const struct shard_layout *s)
{
    const struct plan_layout *l = &in->layout;
    const int64_t part = s->largest_trained / cut_size(l);

    if (!in->device.present || in->device.library_sums || l->offload_params ||
        !l->cut_gradients || copies(in) < 2 || part == 0)
        return 0;
    return (int64_t)exchange_reduce_bytes((size_t)part, 4, (size_t)copies(in),
                                          EXCHANGE_MOST);
}

/* Rounds up to the granularity of the device's memory. */
static int64_t in_steps(int64_t bytes, int64_t step)
{
    return step > 0 ? (bytes + step - 1) / step * step : bytes;
}

/* What is on the device besides the shards, and on the host besides what
 * is offloaded. */
static void add_device(const struct plan_input *in, const struct shard_layout *s,
                       struct plan *p)
{
    const struct plan_device *d = &in->device;
    int64_t stored = p->param_bytes + p->moment_bytes;

    if (!d->present)
        return;
    p->base_bytes = d->base_bytes;
    p->activation_bytes =
        in_steps(in->activation_bytes + in->kept_bytes, d->activation_step);
    p->sum_bytes = sum_bytes(in) + copies_sum_bytes(in, s);
    p->buffer_bytes = d->buffer_bytes;
    p->kernel_bytes = d->kernel_bytes;
    p->copy_bytes = d->buffer_bytes + (p->host_bytes ? 0 : stored);
    p->host_total_bytes = in->base_bytes + d->staging_bytes + in->loader_bytes +
                          p->host_bytes + p->copy_bytes + p->snapshot_bytes +
                          p->round_bytes + p->drain_bytes;
}

/* ---- checkpoints ----------------------------------------------------------------- */

int64_t plan_saved_bytes(const struct config *c, int64_t elems, bool trained,
                         enum moments_choice widest)
{
    const int64_t own = (int64_t)accel_dtype_bytes(precision_of(c).masters);
    const int64_t state = !trained ? 0 : widest == MOMENTS_F32 ? 4 : 1;

    return elems * (own > state ? own : state);
}

/* Of a checkpoint, on the first node: the ranks that have copies of a part share it,
 * and the first ones have whole pieces, while the last one may have less. Gaps between
 * tensors are in no checkpoint with names. */
static int64_t staged_bytes(const struct plan_input *in, const struct precision *p,
                            int64_t all_bytes)
{
    const bool flat = config_state_dict(in->config) == DICT_LOCAL;
    int64_t sum = (in->compressed.state_elems / in->nodes + in->fp8_elems) * 4;

    for (int i = 0; i < in->units; i++) {
        const struct shard_unit u = unit_of(in, i);
        const int64_t there = u.padded / (in->world / in->layout.tp) * in->local_size;
        const int64_t all = flat ? u.padded : u.elems;
        const int64_t trained = flat ? u.padded : u.trained;
        const int64_t n = there < all ? there : all;

        sum += plan_resting_bytes(n, p->masters) +
               state_bytes(in, i, n < trained ? n : trained);
    }
    return flat || sum < all_bytes ? sum : all_bytes;
}

/* Tensors on their way to the one file: what rank 0 sends to itself, what it has of all
 * ranks, and one of them whole. */
static int64_t round_bytes(const struct plan_input *in, const struct plan *p)
{
    const int64_t largest = in->largest_saved_bytes;
    const int64_t own = p->param_bytes + p->moment_bytes;
    const int64_t sent = largest < own ? largest : own;

    return (sent > CKPT_ROUND_BYTES ? sent : CKPT_ROUND_BYTES) +
           (largest > CKPT_ROUND_BYTES ? largest : CKPT_ROUND_BYTES) + largest;
}

static void add_checkpoint(const struct plan_input *in,
                           const struct precision *precision, struct plan *p)
{
    const struct config *c = in->config;
    const bool one_file = config_state_dict(c) == DICT_FULL;

    p->checkpoint_bytes =
        plan_resting_bytes(in->params, precision->masters) +
        (in->compressed.state_elems + in->fp8_elems) * 4 +
        (in->unit_state ? in->saved_state_bytes
                        : state_bytes(in, 0, in->params - in->frozen));
    if (!c->ckpt_save)
        return;
    if (c->ckpt_async != ASYNC_FALSE && !one_file)
        p->snapshot_bytes = (p->checkpoint_bytes + in->world - 1) / in->world;
    if (c->ckpt_async == ASYNC_AUTO)
        p->optional_bytes = p->snapshot_bytes;
    if (one_file && in->world > 1)
        p->round_bytes = round_bytes(in, p);
    if (c->ckpt_local_dir[0]) {
        p->staged_bytes = staged_bytes(in, precision, p->checkpoint_bytes);
        p->drain_bytes = (int64_t)ckpt_drain_bytes();
    }
}

/* Every row of the table has one formula, here or in the layout, and what allocates it
 * follows the same one (doc/architecture.md lists which). */
void plan_compute(const struct plan_input *in, struct plan *plan_out)
{
    const struct plan_layout *l = &in->layout;
    const struct precision precision = precision_of(in->config);
    struct shard_layout s;
    int64_t state, narrow;

    *plan_out = (struct plan){ .activation_bytes = in->activation_bytes,
                               .base_bytes = in->base_bytes };
    add_units(in, &s, &plan_out->moment_bytes);
    plan_out->shard_elems = s.stored_elems;
    plan_out->param_bytes = (int64_t)s.memory.master;
    plan_out->gradient_bytes = (int64_t)s.memory.gradient_shard;
    plan_out->gather_bytes = gathered_bytes(in, &s, &precision);
    plan_out->reduce_bytes =
        in->compressed.on ? in->compressed.memory_elems * 4
                          : (int64_t)(s.memory.reduce_buffer + s.memory.wire_buffer);
    if (plan_keeps_codes(in->config, l))
        plan_out->code_bytes = in->code_bytes / l->tp;
    state = plan_out->param_bytes + plan_out->moment_bytes + plan_out->gradient_bytes;
    narrow = (int64_t)s.memory.narrow_master;
    plan_out->host_bytes = s.rules.offloaded ? state + narrow : 0;
    add_checkpoint(in, &precision, plan_out);
    add_device(in, &s, plan_out);
    plan_out->total_bytes =
        state + narrow - plan_out->host_bytes + plan_out->gather_bytes +
        plan_out->reduce_bytes + plan_out->code_bytes + plan_out->activation_bytes +
        plan_out->base_bytes + plan_out->sum_bytes + plan_out->buffer_bytes +
        plan_out->kernel_bytes +
        (in->device.present ? in->loader_device_bytes
                            : in->loader_bytes + plan_out->snapshot_bytes +
                                  plan_out->round_bytes + plan_out->drain_bytes);
    wire(in, &s, &precision, &plan_out->wire);
    plan_out->wire_bytes_per_step = plan_out->wire.node + plan_out->wire.network;
}

int64_t plan_base_guess(int world)
{
    return GUESS_CONTEXT + (world > 1 ? GUESS_NCCL : 0);
}

/* The plan without what is kept, which would be counted twice. */
int64_t plan_spare_bytes(const struct plan_input *in)
{
    const int64_t memory = in->device.memory_bytes;
    struct plan_input least = *in;
    struct plan p;
    int64_t spare;

    if (!in->device.present)
        return 0;
    least.device.base_bytes = plan_base_guess(in->world);
    least.kept_bytes = 0;
    plan_compute(&least, &p);
    spare = memory - memory / SPARE_PARTS - p.total_bytes;
    return spare > 0 ? spare : 0;
}
