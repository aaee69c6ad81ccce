/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as a table of aligned "key  value" rows, printed once per run.
 * In: the plan and the caller's own rows. Out: text. Never prints itself.
 */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEY_WIDTH 20

static void row(struct strbuf *out, const char *key, const char *value)
{
    strbuf_printf(out, "  %-*s  %s\n", KEY_WIDTH, key, value);
}

__attribute__((format(printf, 3, 4))) static void rowf(struct strbuf *out,
                                                       const char *key, const char *fmt,
                                                       ...)
{
    char value[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    row(out, key, value);
}

static void bytes_row(struct strbuf *out, const char *key, int64_t bytes,
                      const char *what)
{
    char human[32];

    format_bytes((double)bytes, human, sizeof(human));
    rowf(out, key, "%-10s %s", human, what);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void print_shape(const struct plan_input *in, const struct plan *p, bool full,
                        bool bf16, struct strbuf *out)
{
    char human[32];

    format_count((double)in->params, human, sizeof(human));
    rowf(out, "parameters", "%s (%" PRId64 ") in %d unit%s", human, in->params,
         in->units, plural(in->units));
    rowf(out, "ranks", "%d on %d node%s, %d micro-batch%s per step", in->world,
         in->nodes, plural(in->nodes), in->accumulate, in->accumulate == 1 ? "" : "es");
    rowf(out, "sharding", "%s, %" PRId64 " elements per rank",
         full ? "FULL_SHARD" : "NO_SHARD", p->shard_elems);
    row(out, "precision",
        bf16 ? (full ? "bf16 compute and wire, float32 masters and sums"
                     : "bf16 compute, float32 masters, wire and sums")
             : "float32");
}

static void print_memory(const struct plan *p, bool full, struct strbuf *out)
{
    row(out, "memory per rank", "");
    bytes_row(out, "  parameters", p->param_bytes, full ? "shard" : "whole");
    bytes_row(out, "  adam moments", p->moment_bytes, full ? "shard" : "whole");
    bytes_row(out, "  gradients", p->gradient_bytes, full ? "shard" : "whole");
    if (p->gather_bytes)
        bytes_row(out, full ? "  gather ring" : "  bf16 copy", p->gather_bytes,
                  full ? "two largest units" : "all units");
    if (p->reduce_bytes)
        bytes_row(out, "  reduce buffer", p->reduce_bytes, "largest unit");
    bytes_row(out, "  activations", p->activation_bytes, "peak of a micro-batch");
    if (p->base_bytes) /* 0: planned without a run to measure */
        bytes_row(out, "  process", p->base_bytes,
                  "code and libraries, before the model");
    bytes_row(out, "  peak", p->total_bytes, "");
}

/* "key  value  note" rows leave blanks at the end where there is no note. */
static void trim_line_ends(struct strbuf *out, size_t from)
{
    size_t to = from;

    if (!out->s || out->failed)
        return;
    for (size_t i = from; i < out->len; i++) {
        if (out->s[i] == '\n') {
            while (to > from && out->s[to - 1] == ' ')
                to--;
        }
        out->s[to++] = out->s[i];
    }
    out->len = to;
    out->s[to] = '\0';
}

void plan_print(const struct plan_input *in, const struct plan *p,
                const char *const *extra, struct strbuf *out)
{
    bool full = plan_strategy(in->config) == SHARD_FULL;
    size_t from = out->len;

    for (; extra && extra[0] && extra[1]; extra += 2)
        row(out, extra[0], extra[1]);
    print_shape(in, p, full, in->config->mixed_precision == PRECISION_BF16, out);
    print_memory(p, full, out);
    if (in->world > 1)
        bytes_row(out, "sent per step", p->wire_bytes_per_step, "per rank");
    bytes_row(out, "checkpoint", p->checkpoint_bytes, "all ranks together");
    trim_line_ends(out, from);
}
