/* SPDX-License-Identifier: Apache-2.0
 *
 * What would make a plan fit its GPU: remedies are planned, alone and combined, and
 * those that fit are named with the memory they need. In: the plan. Out: one sentence.
 */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

/* how many times the ranks more_ranks tries at most */
enum { MOST_TIMES = 256 };

/* Changes of the plan; zeros change nothing. */
struct remedy {
    /* FULL_SHARD over all ranks */
    bool shard;
    /* activation checkpointing */
    bool recompute;
    /* samples per rank and micro-batch; 0: as they are */
    int batch;
    /* this many times the ranks, with FULL_SHARD; 0: as they are */
    int times;
    /* FULL_SHARD with its state in host memory */
    bool offload;
};

/* The sentence so far. */
struct cure {
    const struct plan_input *in;
    char *text;
    size_t len, used;
};

/* ---- remedies -------------------------------------------------------------------- */

/* FULL_SHARD over all ranks of `in`, which keep their other axes. */
static void cut_all(struct plan_input *in)
{
    const struct plan_layout was = in->layout;
    int i = 0;

    while (plan_layout_at(i++, in->world, in->local_size, &in->layout))
        if (strcmp(in->layout.name, "FULL_SHARD") == 0)
            break;
    in->layout.shard = in->world / (was.cp * was.sp * was.tp);
    in->layout.cp = was.cp;
    in->layout.sp = was.sp;
    in->layout.tp = was.tp;
    in->layout.offload_params = was.offload_params;
}

/* Device bytes of the plan with the remedy. Activations grow with the samples. */
static int64_t bytes_with(const struct plan_input *in, const struct remedy *r)
{
    struct plan_input other = *in;
    struct plan p;

    /* what must fit */
    other.kept_bytes = 0;
    if (r->shard || r->times || r->offload)
        cut_all(&other);
    if (r->recompute)
        other.activation_bytes = in->recomputed_bytes;
    if (r->batch) {
        other.activation_bytes =
            (other.activation_bytes * r->batch + in->batch - 1) / in->batch;
        other.hidden_elems = in->hidden_elems / in->batch * r->batch;
    }
    if (r->times) {
        other.world *= r->times;
        other.nodes *= r->times;
        other.layout.shard *= r->times;
    }
    other.layout.offload_params |= r->offload;
    plan_compute(&other, &p);
    return p.total_bytes;
}

static bool remedy_fits(const struct plan_input *in, const struct remedy *r)
{
    return bytes_with(in, r) <= in->device.memory_bytes;
}

/* Is anything left to cut: are parameters whole, or are there copies? */
static bool can_shard(const struct plan_input *in)
{
    const struct plan_layout *l = &in->layout;

    return !l->cut_params || l->keep_gathered ||
           l->shard * l->cp * l->sp * l->tp < in->world;
}

/* Is it known to save anything? */
static bool can_recompute(const struct plan_input *in)
{
    return in->recomputed_bytes > 0 && in->recomputed_bytes < in->activation_bytes;
}

/* The largest half, quarter ... of the batch that fits, else one sample. */
static void smaller_batch(const struct plan_input *in, struct remedy *r)
{
    for (r->batch = in->batch / 2; r->batch > 1 && !remedy_fits(in, r);)
        r->batch /= 2;
}

/* The fewest ranks, doubled again and again, that the plan fits on; false: none. */
static bool more_ranks(const struct plan_input *in, struct remedy *r)
{
    for (r->times = 2; r->times <= MOST_TIMES; r->times *= 2)
        if (remedy_fits(in, r))
            return true;
    r->times = 0;
    return false;
}

/* ---- in words -------------------------------------------------------------------- */

/* The key that cuts all state, in the words of the config's engine. */
static const char *shard_words(const struct config *c)
{
    if (c->distributed_type == DIST_DEEPSPEED)
        return "zero_stage: 3";
    if (c->distributed_type != DIST_FSDP)
        return "distributed_type: FSDP";
    return config_is(c, "fsdp_version", "2") ? "fsdp_reshard_after_forward: true"
                                             : "fsdp_sharding_strategy: FULL_SHARD";
}

/* Appends a remedy; one that does not fit the text is left out, since half a sentence
 * helps nobody. */
static void add(struct cure *c, const char *what)
{
    int n = snprintf(c->text + c->used, c->len - c->used, "%s%s", c->used ? "; " : "",
                     what);

    if (n > 0 && c->used + (size_t)n < c->len)
        c->used += (size_t)n;
    else
        c->text[c->used] = '\0';
}

/* "A, B and C (12.0 GiB)". A smaller batch comes with as many more micro-batches as
 * keep the samples of a step. */
static void remedy_describe(const struct plan_input *in, const struct remedy *r,
                            char *line, size_t len)
{
    char ranks[48], batch[96], size[32];
    const char *part[6];
    int n = 0, at = 0;

    snprintf(ranks, sizeof(ranks), "FULL_SHARD over %d GPUs", in->world * r->times);
    snprintf(batch, sizeof(batch), "a batch of %d and %d micro-batches a step",
             r->batch,
             r->batch ? in->accumulate * ((in->batch + r->batch - 1) / r->batch) : 0);
    if (r->times)
        part[n++] = ranks;
    else if (r->shard)
        part[n++] = shard_words(in->config);
    if (in->rewrapped)
        part[n++] = "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP";
    if (r->recompute)
        part[n++] = "fsdp_activation_checkpointing: true";
    if (r->batch)
        part[n++] = batch;
    if (r->offload)
        part[n++] = "fsdp_offload_params: true";
    *line = '\0';
    for (int i = 0; i < n && at < (int)len; i++)
        at += snprintf(line + at, len - (size_t)at, "%s%s",
                       i == 0       ? ""
                       : i == n - 1 ? " and "
                                    : ", ",
                       part[i]);
    if (n > 0 && at < (int)len)
        snprintf(line + at, len - (size_t)at, " (%s)",
                 format_bytes((double)bytes_with(in, r), size, sizeof(size)));
}

/* Adds the remedy if the plan fits with it alone. */
static bool add_if_fits(struct cure *c, const struct remedy *r)
{
    char line[320];

    if (!remedy_fits(c->in, r))
        return false;
    remedy_describe(c->in, r, line, sizeof(line));
    add(c, line);
    return true;
}

/* One remedy after the other until the plan fits; then those that it fits without are
 * left out again. */
static void add_together(struct cure *c, bool fsdp_keys)
{
    const struct plan_input *in = c->in;
    struct remedy r = { .shard = can_shard(in),
                        .recompute = fsdp_keys && can_recompute(in) };
    char line[320], all[400];

    if (in->batch > 1 && !remedy_fits(in, &r))
        smaller_batch(in, &r);
    if (!remedy_fits(in, &r) && !more_ranks(in, &r))
        r.offload = fsdp_keys;
    for (int i = 0; i < 3 && remedy_fits(in, &r); i++) {
        struct remedy without = r;

        without.shard &= i != 0;
        without.recompute &= i != 1;
        without.batch *= i != 2;
        if (remedy_fits(in, &without))
            r = without;
    }
    if (add_if_fits(c, &r))
        return;
    remedy_describe(in, &r, line, sizeof(line));
    snprintf(all, sizeof(all), "use a smaller model, or GPUs with more memory%s%s",
             line[0] ? "; still too large: " : "", line);
    add(c, all);
}

/* First each remedy alone, the cheap ones before more ranks and offloading; only when
 * none is enough, several together. DeepSpeed configs have no keys for some of them. */
const char *plan_cure(const struct plan_input *in, const struct plan *p, char *text,
                      size_t len)
{
    struct cure c = { in, text, len, 0 };
    const bool fsdp_keys = in->config->distributed_type != DIST_DEEPSPEED;
    struct remedy r = { .batch = 0 };
    bool found = false;

    *text = '\0';
    if (in->rewrapped)
        found = add_if_fits(&c, &r);
    if (can_shard(in))
        found |= add_if_fits(&c, &(struct remedy){ .shard = true });
    if (fsdp_keys && can_recompute(in))
        found |= add_if_fits(&c, &(struct remedy){ .recompute = true });
    if (in->batch > 1) {
        smaller_batch(in, &r);
        found |= add_if_fits(&c, &r);
    }
    r = (struct remedy){ 0 };
    if (!found && more_ranks(in, &r))
        found = add_if_fits(&c, &r);
    if (!found && fsdp_keys && !in->layout.offload_params)
        found = add_if_fits(&c, &(struct remedy){ .offload = true });
    if (!found)
        add_together(&c, fsdp_keys);
    /* What it saves is not known here. */
    if (fsdp_keys && !in->recomputed_bytes && !config_recomputes(in->config) &&
        p->activation_bytes > p->total_bytes / 4)
        add(&c, "fsdp_activation_checkpointing: true needs less for activations");
    return text;
}
