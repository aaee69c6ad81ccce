/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan`, what is shown: one plan as rows or JSON, all strategies as a table, and
 * the times of checkpoints. In: what plan_model.c found. Out: text on stdout.
 */
#include <jansson.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/plan/plan_cmd.h"

/* "40 s", "12.5 min", "3.1 h" */
static const char *time_text(double s, char *buf, size_t len)
{
    if (s < 120)
        snprintf(buf, len, "%.3g s", s);
    else if (s < 7200)
        snprintf(buf, len, "%.3g min", s / 60);
    else
        snprintf(buf, len, "%.3g h", s / 3600);
    return buf;
}

/* ---- one plan -------------------------------------------------------------------- */

/* The time of a save, and how often to save: Young's interval, with Daly's as the
 * second opinion. Shown only for the speeds the user gave. */
static void print_times(const struct planned *p, const struct plan *plan)
{
    char a[32], b[32], c[32];
    double save, young;

    if (!(p->storage > 0))
        return;
    /* All ranks write at once, so the whole checkpoint over the whole speed. */
    save = (double)plan->checkpoint_bytes / p->storage;
    printf("  %-20s  %-10s at %.3g GB/s\n", "time of a save",
           time_text(save, a, sizeof(a)), p->storage / 1e9);
    if (!(p->mtbf > 0))
        return;
    /* Young's is the simple one, and close to Daly's as long as a save is short. */
    young = plan_interval_young(save, p->mtbf);
    printf("  %-20s  %-10s (Young; Daly: %s) with a failure every %s, which costs "
           "%.2g %% of the time; accel.checkpoint.every_minutes: %.3g\n",
           "save every", time_text(young, a, sizeof(a)),
           time_text(plan_interval_daly(save, p->mtbf), b, sizeof(b)),
           time_text(p->mtbf, c, sizeof(c)),
           100 * plan_interval_loss(young, save, p->mtbf), young / 60);
}

/* Says what is not known before a run. */
static void print_notes(const struct planned *p)
{
    const struct plan_device *d = &p->in.device;

    /* Nothing to hold the peak against: neither a GPU here nor --gpu-memory. */
    if (d->present && d->memory_bytes == 0)
        puts("  (--gpu-memory GIB compares the peak with the memory of a GPU)");
    puts(d->present ? "  (host memory of the process before the model is measured when "
                      "a run starts)"
                    : "  (memory of the process before the model is measured when a "
                      "run starts)");
}

/* The rows of plan_print, which a run prints too, after what only the
 * command line knows. */
static int print_plan_text(const struct planned *p, const struct plan *plan,
                           const char *file)
{
    struct strbuf text = { 0 };
    /* Rows only the command line can fill; plan_print takes them as name and text. */
    char shape[160], batch[128], threads[32];

    snprintf(shape, sizeof(shape),
             "%s: %d layers, %d heads, width %d, context %d, "
             "vocabulary %d",
             p->model, p->shape.layers, p->shape.heads, p->shape.width,
             p->shape.context, p->shape.vocab);
    snprintf(batch, sizeof(batch), "%d per rank of %d tokens", p->batch, p->seq);
    snprintf(threads, sizeof(threads), "%d per rank%s", p->threads,
             p->in.device.present ? ", one GPU each" : "");
    plan_print(&p->in, plan,
               (const char *[]){ "config", file, "model", shape, "batch", batch,
                                 "threads", threads, NULL },
               &text);
    if (text.failed) {
        strbuf_free(&text);
        return cli_no_memory("the plan");
    }
    fputs(text.s, stdout);
    strbuf_free(&text);
    print_times(p, plan);
    print_notes(p);
    return cli_finish(0);
}

/* Bytes per rank by kind. Keys are part of the interface: scripts read them. */
static json_t *bytes_json(const struct plan_input *in, const struct plan *p)
{
    /* with a GPU it is the host's, as the rest of `gpu` */
    const int64_t copy = in->device.present ? 0 : p->snapshot_bytes;

    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}",
        "parameters", (json_int_t)p->param_bytes, "adam_moments",
        (json_int_t)p->moment_bytes, "gradients", (json_int_t)p->gradient_bytes,
        "gather", (json_int_t)p->gather_bytes, "fp8_weights", (json_int_t)p->code_bytes,
        "reduce", (json_int_t)p->reduce_bytes, "sums", (json_int_t)p->sum_bytes,
        "activations", (json_int_t)p->activation_bytes, "buffers",
        (json_int_t)p->buffer_bytes, "kernels", (json_int_t)p->kernel_bytes,
        "before_the_model", (json_int_t)p->base_bytes, "in_host_memory",
        (json_int_t)p->host_bytes, "saves_to_one_file", (json_int_t)p->round_bytes,
        "copies_from_nodes", (json_int_t)p->drain_bytes, "copy_for_the_background",
        (json_int_t)copy, "peak", (json_int_t)p->total_bytes);
}

/* What the GPU has and what its rank needs on the host; null
 * where the host computes. */
static json_t *gpu_json(const struct plan_input *in, const struct plan *p)
{
    const struct plan_device *d = &in->device;

    if (!d->present)
        return json_null();
    return json_pack(
        "{s:o,s:o,s:b,s:I,s:I,s:I,s:I}", "memory_bytes",
        d->memory_bytes > 0 ? json_integer((json_int_t)d->memory_bytes) : json_null(),
        "fits",
        d->memory_bytes > 0 ? json_boolean(p->total_bytes <= d->memory_bytes)
                            : json_null(),
        "before_the_model_is_estimated", (int)d->base_guessed, "host_page_locked_bytes",
        (json_int_t)d->staging_bytes, "host_checkpoint_bytes",
        (json_int_t)p->copy_bytes, "host_background_bytes",
        (json_int_t)p->snapshot_bytes, "host_peak_bytes",
        (json_int_t)p->host_total_bytes);
}

/* {"dp_shard": {"size": 8, "stride": 1}, ...} */
static json_t *groups_json(const struct plan_layout *l)
{
    json_t *all = json_object();

    for (int a = 0; a < AXIS_COUNT; a++) {
        struct plan_group g = plan_group_of(l, (enum plan_axis)a);

        json_object_set_new(all, plan_axis_name((enum plan_axis)a),
                            json_pack("{s:i,s:i}", "size", g.size, "stride", g.stride));
    }
    return all;
}

/* Seconds, or null where the speed or the failure rate was not given. */
static json_t *times_json(const struct planned *p, const struct plan *plan)
{
    double save = p->storage > 0 ? (double)plan->checkpoint_bytes / p->storage : 0;
    json_t *o = json_object();

    json_object_set_new(o, "save", save > 0 ? json_real(save) : json_null());
    json_object_set_new(o, "save_every_young",
                        p->mtbf > 0 ? json_real(plan_interval_young(save, p->mtbf))
                                    : json_null());
    json_object_set_new(o, "save_every_daly",
                        p->mtbf > 0 ? json_real(plan_interval_daly(save, p->mtbf))
                                    : json_null());
    return o;
}

/* What follows from the layout. `cut`: ranks that share one copy of
 * the optimizer's state. */
static json_t *plan_json(const struct planned *p, const struct plan *plan)
{
    const struct plan_layout *l = &p->in.layout;
    /* Context-parallel ranks hold the same parameters, so they share the state, too. */
    int cut = l->cut_optimizer ? l->shard * l->cp : 1;

    return json_pack(
        "{s:s,s:b,s:o,s:i,s:i,s:I,s:o,s:o,s:I,s:{s:I,s:I,s:I},s:I,s:I,s:o}", "sharding",
        l->name, "supported", (int)l->runs, "groups", groups_json(l),
        "shard_group_size", cut, "replica_group_size", p->in.world / l->tp / cut,
        "shard_elems_per_rank", (json_int_t)plan->shard_elems, "bytes_per_rank",
        bytes_json(&p->in, plan), "gpu", gpu_json(&p->in, plan),
        "sent_bytes_per_rank_and_step", (json_int_t)plan->wire_bytes_per_step,
        "sent_by_link", "node", (json_int_t)plan->wire.node, "network",
        (json_int_t)plan->wire.network, "host", (json_int_t)plan->wire.host,
        "checkpoint_bytes", (json_int_t)plan->checkpoint_bytes, "staged_bytes_per_node",
        (json_int_t)plan->staged_bytes, "seconds", times_json(p, plan));
}

/* Sizes and layout in one object; order kept, so that two plans can be
 * compared line by line. */
static int print_plan_json(const struct planned *p, const struct plan *plan,
                           const char *file)
{
    const accel_model_config_t *m = &p->shape;
    json_t *all =
        json_pack("{s:s,s:{s:s,s:i,s:i,s:i,s:i,s:i},s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:i}",
                  "config", file, "model", "name", p->model, "layers", m->layers,
                  "heads", m->heads, "width", m->width, "context", m->context, "vocab",
                  m->vocab, "params", (json_int_t)p->in.params, "units", p->in.units,
                  "nodes", p->in.nodes, "ranks", p->in.world, "seq", p->seq, "batch",
                  p->batch, "accumulate", p->in.accumulate, "threads", p->threads);
    /* What follows from the layout, merged into the same object. */
    json_t *rest = plan_json(p, plan);

    /* All of them may be NULL, which jansson takes. */
    if (json_object_update(all, rest)) {
        json_decref(all);
        all = NULL;
    }
    json_decref(rest);
    return cli_print_json(all, JSON_INDENT(2) | JSON_PRESERVE_ORDER, "the plan");
}

/* A plan is computed where it is shown: it is a pure function of p->in, and cheap. */
int plan_show(const struct planned *p, const char *file, bool json)
{
    struct plan plan;

    plan_compute(&p->in, &plan);
    return json ? print_plan_json(p, &plan, file) : print_plan_text(p, &plan, file);
}
