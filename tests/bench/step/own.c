/* SPDX-License-Identifier: Apache-2.0
 *
 * See own.h. The step is the trainer's: forward, backward into the shards, norm of the
 * gradient, AdamW; parameters, moments and gradients belong to shard/, world of one.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/boot.h"
#include "nn/fp8_linears.h"
#include "models/model_config.h"
#include "observe/observe.h"
#include "optim/optim.h"
#include "shard/shard.h"
#include "tests/bench/step/floor.h"
#include "tests/bench/step/own.h"
#include "tests/bench/step/profile.h"

static const accel_model_config_t gpt2_124m = { .model_type = "gpt2",
                                                .layers = 12,
                                                .heads = 12,
                                                .width = 768,
                                                .context = 1024,
                                                .vocab = 50304 };
/* 56 M parameters. */
static const accel_model_config_t llama_56m = {
    .model_type = "llama",
    .layers = 8,
    .heads = 8,
    .kv_heads = 4,
    .width = 512,
    .hidden = 1408,
    .context = 1024,
    .vocab = 32000,
    .rope = { .theta = 10000.0f },
};

struct own {
    struct own_options o;
    struct backend *be;
    struct profile profile;
    struct graph g;
    accel_module_t *model;
    struct units units;
    struct config config; /* of fp8 */
    struct fp8_linears linears;
    struct boot boot;
    struct comm *comm;
    struct shard *shard;
    int64_t base_bytes, steps, micros_done;
    int64_t forward_ns, backward_ns, optimizer_ns;
};

/* As a run with the defaults does. */
static accel_status_t open_fp8(struct own *w, accel_error_t *err)
{
    accel_status_t st;

    config_defaults(&w->config);
    st = fp8_linears_open(&w->linears, &w->model, 1, &w->config, err);
    if (!st)
        st = fp8_linears_place(&w->linears, w->be, err);
    fp8_linears_keep(&w->linears, w->be, !w->o.uncached);
    return st ? st : fp8_linears_room(&w->linears, w->be, err);
}

static accel_status_t open_all(struct own *w, accel_error_t *err)
{
    const struct shard_optim adamw = { .settings = optim_defaults((accel_optimizer_t){
                                           .lr = 1e-4f, .weight_decay = 0.1f }) };
    struct shard_options options = { .strategy = SHARD_FULL,
                                     .precision = { .compute = w->o.compute,
                                                    .parameters = w->o.compute,
                                                    .reduce = w->o.compute } };
    struct comm_options comm = { .backend = "self" };
    accel_status_t st = backend_cpu_open(&w->be, w->o.threads, err);

    if (st)
        return st;
    options.backend = w->be;
    options.optim = &adamw;
    options.optims = 1;
    profile_open(&w->profile, w->be);
    st = boot_open(&w->boot, 10000, err);
    if (!st)
        st = comm_open(&w->comm, &w->boot, &comm, err);
    if (!st)
        st = graph_open(&w->g, &w->profile.be, w->o.compute, false, err);
    if (st)
        return st;
    w->base_bytes = observe_memory(NULL);
    w->model = model_new(&w->g, w->o.llama ? &llama_56m : &gpt2_124m, err);
    if (!w->model)
        return err->code;
    st = nn_units_build(w->model, true, "", &w->units, err);
    if (!st)
        st = shard_open(&w->shard, w->comm, &options, &w->units, err);
    if (st)
        return st;
    w->g.residency = shard_residency(w->shard);
    shard_init(w->shard, 1);
    return w->o.fp8 ? open_fp8(w, err) : ACCEL_OK;
}

static void close_all(struct own *w)
{
    fp8_linears_close(&w->linears);
    shard_close(w->shard);
    units_free(&w->units);
    nn_module_free(w->model);
    graph_close(&w->g);
    comm_close(w->comm);
    boot_free(&w->boot);
    backend_close(w->be);
}

/* Forward and backward of one micro-batch. */
static accel_status_t one_micro(struct own *w, accel_error_t *err)
{
    const int vocab = w->o.llama ? llama_56m.vocab : gpt2_124m.vocab;
    int64_t dims[2] = { w->o.batch, w->o.time }, from, middle;
    accel_tensor_t *in[2], *loss;
    accel_status_t st;

    graph_reset(&w->g);
    for (int k = 0; k < 2; k++) {
        in[k] = graph_tensor(&w->g, ACCEL_I32, 2, dims);
        for (int64_t i = 0; in[k] && i < in[k]->elems; i++)
            ((int32_t *)in[k]->data)[i] =
                (int32_t)((i + k + w->micros_done * 31) * 7919 % vocab);
    }
    w->micros_done++;
    from = clock_ns();
    loss = accel_call(w->model, in, 2);
    middle = clock_ns();
    st = shard_backward_begin(w->shard, w->o.micros, err);
    if (!st)
        st = graph_backward(&w->g, loss, 1.0f, err);
    if (!st)
        st = shard_backward_end(w->shard, err);
    w->forward_ns += middle - from;
    w->backward_ns += clock_ns() - middle;
    return st;
}

static void move_scales(struct own *w)
{
    struct fp8_linears *l = &w->linears;

    if (!l->count)
        return;
    fp8_linears_look(l);
    for (int i = 0; i < l->count; i++)
        fp8_update(&l->linear[i], true);
    fp8_linears_show(l);
}

static accel_status_t one_step(struct own *w, accel_error_t *err)
{
    double sumsq;
    int64_t end;
    accel_status_t st = ACCEL_OK;

    w->forward_ns = w->backward_ns = 0;
    for (int i = 0; i < w->o.micros && !st; i++)
        st = one_micro(w, err);
    if (!st)
        st = shard_reduce(w->shard, 0, err);
    end = clock_ns();
    if (!st)
        st = shard_grad_sumsq(w->shard, 0, &sumsq, err);
    if (st)
        return st;
    move_scales(w);
    st = shard_update(w->shard, 0, 1e-4f, ++w->steps, sumsq > 1.0 ? 0.5f : 1.0f, err);
    w->optimizer_ns = clock_ns() - end;
    return st;
}

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

static void print_memory(struct own *w)
{
    accel_field_t field[2] = {
        { .dtype = ACCEL_I32, .ndim = 1, .dims = { w->o.time } }
    };
    struct shard_memory m;
    size_t activations = 0;
    int64_t peak;
    double planned;
    char a[32], b[32], c[32];

    field[1] = field[0];
    shard_memory(w->shard, &m);
    if (nn_measure(w->model, w->o.batch, field, 2, true, &activations, NULL))
        return;
    observe_memory(&peak);
    planned = (double)(m.master + m.moments + m.gradient_shard + m.gather_slots +
                       m.coded_room + m.reduce_buffer + activations) +
              (double)w->linears.kept_bytes + (double)w->base_bytes;
    printf("  memory    planned %s (activations %s), measured peak %s, ratio %.3f\n",
           format_bytes(planned, a, sizeof(a)),
           format_bytes((double)activations, b, sizeof(b)),
           format_bytes((double)peak, c, sizeof(c)), (double)peak / planned);
}

/* Of the last step. */
static void report(struct own *w)
{
    int64_t known = 0, all = w->forward_ns + w->backward_ns;
    double blas = 0, params = 0;

    print_memory(w); /* before the products below take some of their own */
    for (int i = 0; i < PROFILE_KINDS; i++) {
        known += w->profile.ns[i];
        printf("  %-10s %8.1f ms\n", profile_name((enum profile_kind)i),
               ms(w->profile.ns[i]));
    }
    printf("  %-10s %8.1f ms   (parameters, gradients, tape)\n", "other",
           ms(all - known));
    printf("  %-10s %8.1f ms   (norm, AdamW)\n", "optimizer", ms(w->optimizer_ns));
    printf("  product      m     n     k      count     ms    GF/s   plain BLAS\n");
    for (int i = 0; i < w->profile.products; i++) {
        const struct product *t = &w->profile.product[i];
        const struct gemm *p = &t->p;
        double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        double plain = floor_product_ns(p, w->be->threads);

        blas += plain * t->count;
        printf("  %-8s %5d %5d %5d %10d %6.1f  %6.1f       %6.1f\n",
               p->trans_a   ? "dweight"
               : p->trans_b ? "forward"
                            : "dx",
               (int)p->m, (int)p->n, (int)p->k, t->count, ms(t->ns),
               flop * t->count / (double)t->ns, flop / plain);
    }
    for (int u = 0; u < w->units.count; u++)
        params += (double)w->units.unit[u].elems;
    printf(
        "  floor     %.0f ms: products in plain float32 BLAS %.0f, AdamW's 28 bytes a "
        "parameter at the rate of a copy %.0f\n",
        (blas + params * 28 / floor_copy_rate(w->be->threads)) / 1e6, blas / 1e6,
        params * 28 / floor_copy_rate(w->be->threads) / 1e6);
    printf("end\n");
}

int own_serve(const struct own_options *o)
{
    struct own w = { .o = *o };
    accel_error_t err = { 0 };
    char line[64];
    accel_status_t st;

    if (o->threads > 0)
        omp_set_num_threads(o->threads);
    st = open_all(&w, &err);
    if (!st)
        printf("ready isa %s, %d threads\n", w.be->isa, w.be->threads);
    fflush(stdout);
    while (!st && fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "step\n") == 0) {
            profile_reset(&w.profile);
            st = one_step(&w, &err);
            if (!st)
                printf("step %.3f %.3f %.3f\n", ms(w.forward_ns), ms(w.backward_ns),
                       ms(w.optimizer_ns));
        } else {
            report(&w);
        }
        fflush(stdout);
    }
    if (st)
        fprintf(stderr, "%s: %s (%s)\n", err.where, err.text, err.hint);
    close_all(&w);
    return st ? 1 : 0;
}
