/* SPDX-License-Identifier: Apache-2.0
 *
 * What would help a plan that does not fit the GPU: other layouts are planned as well, and
 * those that need less are named with what they need. In: the plan. Out: one sentence.
 */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

struct cure {
    char *text;
    size_t len, used;
    int64_t memory; /* of the device */
};

static void add(struct cure *c, const char *what)
{
    int n = snprintf(c->text + c->used, c->len - c->used, "%s%s", c->used ? "; " : "",
                     what);

    if (n > 0 && c->used + (size_t)n < c->len)
        c->used += (size_t)n;
    else
        c->text[c->used] = '\0'; /* half a sentence helps nobody */
}

/* "WHAT (12.0 GiB)"; returns whether it fits. */
static bool add_layout(struct cure *c, const struct plan_input *in, const char *what,
                       int64_t than)
{
    char line[160], size[32];
    struct plan p;

    plan_compute(in, &p);
    if (p.total_bytes >= than - than / 50) /* not worth a word */
        return false;
    snprintf(line, sizeof(line), "%s (%s)", what,
             format_bytes((double)p.total_bytes, size, sizeof(size)));
    add(c, line);
    return p.total_bytes <= c->memory;
}

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

/* The fewest GPUs, doubled again and again, over which the state fits. */
static bool add_ranks(struct cure *c, const struct plan_input *in, int64_t than)
{
    struct plan_input more = *in;
    char what[64];
    struct plan p;

    for (int times = 2; times <= 256; times *= 2) {
        more.world = in->world * times;
        more.nodes = in->nodes * times;
        more.layout.shard = in->layout.shard * times;
        plan_compute(&more, &p);
        if (p.total_bytes > c->memory)
            continue;
        snprintf(what, sizeof(what), "FULL_SHARD over %d GPUs", more.world);
        return add_layout(c, &more, what, than);
    }
    return false;
}

const char *plan_cure(const struct plan_input *in, const struct plan *p, char *text,
                      size_t len)
{
    struct cure c = { text, len, 0, in->device.memory_bytes };
    struct plan_input other = *in;
    bool fits = false;

    *text = '\0';
    cut_all(&other);
    if (in->world > 1)
        fits = add_layout(&c, &other, "fsdp_sharding_strategy: FULL_SHARD",
                          p->total_bytes);
    if (p->activation_bytes > p->total_bytes / 4) {
        if (!config_recomputes(in->config))
            add(&c, "fsdp_activation_checkpointing: true");
        add(&c, "a smaller batch with more gradient accumulation");
    }
    if (!fits)
        fits = add_ranks(&c, &other, p->total_bytes);
    other.layout.offload_params = true;
    if (!fits && !in->layout.offload_params)
        add_layout(&c, &other, "fsdp_offload_params: true", p->total_bytes);
    if (!c.used)
        add(&c, "use a smaller model, or GPUs with more memory");
    return text;
}
