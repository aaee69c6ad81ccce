/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as a table of aligned "key value" rows, printed once per run. In: the plan
 * and the caller's own rows. Out: text. Never prints itself.
 */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "precision/policy.h"

#define KEY_WIDTH 20

/* " key value" */
static void row(struct strbuf *out, const char *key, const char *value)
{
    strbuf_printf(out, "  %-*s  %s\n", KEY_WIDTH, key, value);
}

/* row with a formatted value. */
__attribute__((format(printf, 3, 4))) static void rowf(struct strbuf *out,
                                                       const char *key, const char *fmt,
                                                       ...)
{
    char value[256];
    va_list ap;

    va_start(ap, fmt);
    text_vformat(value, sizeof(value), fmt, ap);
    va_end(ap);
    row(out, key, value);
}

/* A row of bytes in a human unit, with a note. */
static void bytes_row(struct strbuf *out, const char *key, int64_t bytes,
                      const char *what)
{
    char human[32];

    format_bytes((double)bytes, human, sizeof(human));
    rowf(out, key, "%-10s %s", human, what);
}

/* The same where there are any. */
static void some_row(struct strbuf *out, const char *key, int64_t bytes,
                     const char *what)
{
    if (bytes)
        bytes_row(out, key, bytes, what);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* "dp_replicate 2 x dp_shard 8": the axes that divide the ranks. A plain group needs
 * no row. */
static void print_mesh(const struct plan_layout *l, struct strbuf *out)
{
    char text[160] = "";
    size_t used = 0;
    int axes = 0;

    for (int a = 0; a < AXIS_COUNT; a++) {
        struct plan_group g = plan_group_of(l, (enum plan_axis)a);

        if (g.size == 1 || used >= sizeof(text))
            continue;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %d",
                                 axes++ ? " x " : "", plan_axis_name((enum plan_axis)a),
                                 g.size);
    }
    if (axes > 1)
        row(out, "groups", text);
}

/* The dtype that gradients travel in, as the key has it, where it is not that of the
 * computation; else NULL. */
static const char *narrow_wire(const struct plan_layout *l, const struct precision *p)
{
    if (!l->cut_optimizer || p->reduce == p->compute)
        return NULL;
    return p->reduce == ACCEL_BF16     ? "bf16"
           : p->reduce == ACCEL_F16    ? "fp16"
           : p->reduce == ACCEL_F8E4M3 ? "e4m3"
           : p->reduce == ACCEL_F8E5M2 ? "e5m2"
                                       : NULL;
}

/* Sums are always float32; the row says what else there is. */
static void print_precision(const struct plan_layout *l, const struct precision *p,
                            struct strbuf *out)
{
    const char *wire = narrow_wire(l, p),
               *word = p->fp8 ? "fp8 linears, bf16" : precision_word(p);
    const char *scaled = p->scaled ? ", loss scaled" : "";
    const bool wide = p->masters == ACCEL_F32;

    if (p->compute == ACCEL_F32 && wire)
        rowf(out, "precision", "float32, gradients sent in %s", wire);
    else if (p->compute == ACCEL_F32)
        row(out, "precision", "float32");
    else if (wire)
        rowf(out, "precision", "%s compute%s, gradients sent in %s, float32 %ssums",
             word, scaled, wire, wide ? "masters and " : "");
    else if (l->cut_optimizer && p->reduce == p->compute)
        rowf(out, "precision", "%s compute and wire%s, float32 %ssums", word, scaled,
             wide ? "masters and " : "");
    else
        rowf(out, "precision", "%s compute%s, float32 %s%s and sums", word, scaled,
             wide ? "masters, " : "", l->cut_optimizer ? "gradients" : "wire");
}

/* What weights are between steps, and whose way that is. */
static void print_masters(const struct precision *p, struct strbuf *out)
{
    if (p->compute == ACCEL_F32)
        return;
    row(out, "masters",
        p->masters == ACCEL_F32 ? "float32, as FSDP in this precision and DeepSpeed"
        : p->masters_nearest    ? "none: bf16 weights, to the nearest, as FSDP without "
                                  "mixed precision"
        : p->masters == ACCEL_F16
            ? "fp16 with scales, rounded stochastically (accel.precision.masters)"
            : "bf16, rounded stochastically (accel.precision.masters)");
}

/* Units whose modules have other dtypes than the run's. */
static int other_units(const struct plan_input *in)
{
    int n = 0;

    for (int u = 0; u < in->units && in->unit_types; u++)
        n += in->unit_types[u].own;
    return n;
}

/* The weights of fp8 linears that are gathered in the dtype of the computation,
 * which every op takes. */
static void print_wide(const struct plan_input *in, const struct precision *p,
                       struct strbuf *out)
{
    char more[48] = "";

    if (in->wide > 1)
        snprintf(more, sizeof(more), " and %d other weight%s", in->wide - 1,
                 plural(in->wide - 1));
    rowf(out, "not in fp8", "%s%s: gathered in %s, for ops that are no linears",
         in->wide_name, more, accel_dtype_name(p->parameters));
}

/* What is trained, on how many ranks, how it is cut. */
static void print_shape(const struct plan_input *in, const struct plan *p,
                        struct strbuf *out)
{
    const struct plan_layout *l = &in->layout;
    const struct precision precision = precision_of(in->config);
    char human[32], frozen[48] = "";

    format_count((double)in->params, human, sizeof(human));
    if (in->frozen)
        snprintf(frozen, sizeof(frozen), ", %" PRId64 " of them frozen", in->frozen);
    rowf(out, "parameters", "%s (%" PRId64 ") in %d unit%s%s", human, in->params,
         in->units, plural(in->units), frozen);
    rowf(out, "ranks", "%d on %d node%s, %d micro-batch%s per step", in->world,
         in->nodes, plural(in->nodes), in->accumulate, in->accumulate == 1 ? "" : "es");
    rowf(out, "sharding", "%s, %" PRId64 " elements per rank%s", l->name,
         p->shard_elems, l->runs ? "" : " (planned only: not supported yet)");
    print_mesh(l, out);
    print_precision(l, &precision, out);
    if (other_units(in))
        rowf(out, "modules", "%d of %d unit%s in other dtypes", other_units(in),
             in->units, plural(in->units));
    if (in->wide && plan_has_codes(in))
        print_wide(in, &precision, out);
    print_masters(&precision, out);
}

/* The row of the narrow copy of the parameters. */
static const char *copy_name(const struct plan_input *in)
{
    return other_units(in)                                    ? "  copies"
           : precision_of(in->config).parameters == ACCEL_F16 ? "  fp16 copy"
                                                              : "  bf16 copy";
}

/* Parameters, moments and gradients. Offloaded ones are printed with the
 * host's rows. */
static void print_state(const struct plan_input *in, const struct plan *p,
                        struct strbuf *out)
{
    const struct plan_layout *l = &in->layout;
    const char *state = l->cut_optimizer ? "shard" : "whole";
    static const char *const moments[] = { [MOMENTS_F32] = "",
                                           [MOMENTS_8BIT] = ", 8-bit",
                                           [MOMENTS_FP8] = ", in e4m3 and fp16" };
    char name[32], form[32];

    bytes_row(out, "  parameters", p->param_bytes, state);
    if (p->moment_bytes) {
        snprintf(name, sizeof(name), "  %s", in->optimizer);
        snprintf(form, sizeof(form), "%s%s", state, moments[in->moments]);
        bytes_row(out, name, p->moment_bytes, form);
    }
    snprintf(form, sizeof(form), "%s%s", l->cut_gradients ? "shard" : "whole",
             in->config->gradients == GRADIENTS_FP8 ? ", in e4m3" : "");
    bytes_row(out, "  gradients", p->gradient_bytes, form);
}

/* With what is kept only because there is room. */
static void activations_row(const struct plan_input *in, const struct plan *p,
                            struct strbuf *out)
{
    char kept[32], note[128] = "peak of a micro-batch";

    if (in->kept_bytes)
        snprintf(note, sizeof(note),
                 "peak of a micro-batch, in steps of 32 MiB; %s of it only because "
                 "there is room, for logits",
                 format_bytes((double)in->kept_bytes, kept, sizeof(kept)));
    else if (in->device.activation_step > 0)
        snprintf(note, sizeof(note), "peak of a micro-batch, in steps of 32 MiB");
    bytes_row(out, "  activations", p->activation_bytes, note);
}

/* What the row of gathered parameters holds. */
static const char *gather_note(const struct plan_input *in, bool ring)
{
    const bool others = other_units(in) > 0;

    if (ring)
        return others ? "two largest units of each dtype" : "two largest units";
    return others && !in->layout.cut_optimizer ? "units in other dtypes than masters"
                                               : "all units";
}

/* What a step needs besides the state; rows of 0 bytes are left out. */
static void print_buffers(const struct plan_input *in, const struct plan *p,
                          struct strbuf *out)
{
    const struct plan_layout *l = &in->layout;
    const bool whole = plan_rings_whole(in);
    const bool ring = whole || (l->cut_params && !l->keep_gathered);

    if (p->gather_bytes && plan_holds_codes(in))
        bytes_row(out, "  weights", p->gather_bytes, "all units, linears in e4m3");
    else if (p->gather_bytes)
        bytes_row(out, l->cut_optimizer || whole ? "  gather ring" : copy_name(in),
                  p->gather_bytes, gather_note(in, ring));
    some_row(out, "  fp8 weights", p->code_bytes, "made once per step");
    some_row(out, in->compressed.on ? "  PowerSGD" : "  reduce buffer", p->reduce_bytes,
             in->compressed.on ? "factors, and what they lack"
             : other_units(in) ? "largest unit of each dtype"
                               : "largest unit");
    some_row(out, "  sums", p->sum_bytes,
             in->device.library_sums ? "part of a gradient"
                                     : "gradients of all ranks, a piece at a time");
    if (p->activation_bytes) /* 0: the program feeds itself, shapes are not known */
        activations_row(in, p, out);
}

/* What saves take on the host beside copies of what is saved. */
static void print_saving(const struct plan *p, struct strbuf *out)
{
    some_row(out, "  one file", p->round_bytes,
             "rank 0: tensors of all ranks on their way to it, at most");
    some_row(out, "  from the nodes", p->drain_bytes,
             "buffers of the copy to the checkpoint directory");
}

/* One table, where the host computes. */
static void print_host(const struct plan_input *in, const struct plan *p,
                       struct strbuf *out)
{
    row(out, "memory per rank", "");
    print_state(in, p, out);
    print_buffers(in, p, out);
    some_row(out, "  loaders", in->loader_bytes,
             "batches that are read ahead, tables of orders");
    some_row(out, "  checkpoint", p->snapshot_bytes,
             p->optional_bytes ? "a copy to write in the background, if memory is left"
                               : "a copy that is written in the background");
    print_saving(p, out);
    /* 0: planned without a run to measure */
    some_row(out, "  process", p->base_bytes, "code and libraries, before the model");
    bytes_row(out, "  peak", p->total_bytes,
              p->host_bytes ? "host memory excluded" : "");
    some_row(out, "  host memory", p->host_bytes, "parameters, moments, gradients");
}

/* The peak against the memory of the device, where that is known. */
static void peak_row(struct strbuf *out, int64_t bytes, int64_t memory)
{
    char all[32], note[96] = "";

    if (memory > 0)
        snprintf(note, sizeof(note), "%.0f %% of %s%s",
                 100.0 * (double)bytes / (double)memory,
                 format_bytes((double)memory, all, sizeof(all)),
                 bytes > memory ? ": does not fit" : "");
    bytes_row(out, "  peak", bytes, note);
}

/* Two tables: each rank has one GPU; everything else is on the host. */
static void print_device(const struct plan_input *in, const struct plan *p,
                         struct strbuf *out)
{
    const struct plan_device *d = &in->device;

    row(out, "memory of the GPU", "per rank");
    if (!p->host_bytes)
        print_state(in, p, out);
    print_buffers(in, p, out);
    some_row(out, "  buffers", p->buffer_bytes, "of the model, not trained");
    some_row(out, "  loaders", in->loader_device_bytes,
             "batches on their way to the GPU");
    bytes_row(out, "  kernels", p->kernel_bytes, "workspace, reserved at the start");
    bytes_row(out, "  before the model", p->base_bytes,
              d->base_guessed ? "estimate: CUDA context, code, NCCL; a run measures it"
                              : "CUDA context, code, NCCL, other processes");
    peak_row(out, p->total_bytes, d->memory_bytes);
    row(out, "memory of the host", "per rank");
    if (p->host_bytes)
        print_state(in, p, out);
    if (p->host_bytes > p->param_bytes + p->moment_bytes + p->gradient_bytes)
        bytes_row(out, copy_name(in),
                  p->host_bytes - p->param_bytes - p->moment_bytes - p->gradient_bytes,
                  "of the parameters, to gather from");
    some_row(out, "  checkpoint", p->copy_bytes,
             "a copy of the shards, while saving or loading");
    some_row(out, "  in the background", p->snapshot_bytes,
             p->optional_bytes
                 ? "a copy of the shards to write (page-locked), if memory is left"
                 : "a copy of the shards that is being written (page-locked)");
    print_saving(p, out);
    bytes_row(out, "  page-locked", d->staging_bytes,
              "buffers for copies to and from the GPU, at most");
    some_row(out, "  loaders", in->loader_bytes,
             "batches that are read ahead (page-locked), tables of orders");
    some_row(out, "  process", in->base_bytes, "code and libraries, before the model");
    bytes_row(out, "  peak", p->host_total_bytes, "");
}

/* The parts are only worth a row where there is a network. */
static void print_wire(const struct plan_input *in, const struct plan *p,
                       struct strbuf *out)
{
    if (in->world > 1)
        bytes_row(out, "sent per step", p->wire_bytes_per_step, "per rank");
    if (p->wire.network) {
        bytes_row(out, "  in the node", p->wire.node, "");
        bytes_row(out, "  over the network", p->wire.network, "");
    }
    some_row(out, "to and from host", p->wire.host, "per rank and step");
}

/* "key value note" rows end in blanks where there is no note. */
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
    size_t from = out->len;

    for (; extra && extra[0] && extra[1]; extra += 2)
        row(out, extra[0], extra[1]);
    print_shape(in, p, out);
    if (in->device.present)
        print_device(in, p, out);
    else
        print_host(in, p, out);
    print_wire(in, p, out);
    bytes_row(out, "checkpoint", p->checkpoint_bytes,
              config_state_dict(in->config) == DICT_FULL ? "in one file, by rank 0"
                                                         : "all ranks together");
    if (p->staged_bytes) {
        char note[128];

        snprintf(note, sizeof(note),
                 "of each on a node's disk (accel.checkpoint.local_dir), at most %d at "
                 "a time",
                 PLAN_STAGED);
        bytes_row(out, "  staged", p->staged_bytes, note);
    }
    trim_line_ends(out, from);
}
