/* SPDX-License-Identifier: Apache-2.0
 *
 * See shard_world.h. Counts the bytes that leave each rank by standing in front of
 * comm's functions (linker option --wrap).
 */
#include "tests/world/shard_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "numbers/bf16.h"
#include "numbers/rng.h"
#include "numbers/wire.h"
#include "optim/optim.h"
#include "tests/tap.h"

static const struct {
    const char *name;
    int ndim;
    int64_t dim[3];
    accel_init_t init;
} root_params[] = { { "wte", 2, { 37, 17 }, { ACCEL_INIT_NORMAL, 0.5f } },
                    { "wpe", 2, { 9, 17 }, { ACCEL_INIT_UNIFORM, 0.5f } },
                    { "lnf.gain", 1, { 17 }, { ACCEL_INIT_ONES, 0 } } },
  block_params[] = { { "weight", 2, { 23, 17 }, { ACCEL_INIT_NORMAL, 0.5f } },
                     { "bias", 1, { 23 }, { ACCEL_INIT_ZEROS, 0 } },
                     { "cube", 3, { 3, 5, 7 }, { ACCEL_INIT_NORMAL, 0.5f } },
                     { "scalar", 1, { 1 }, { ACCEL_INIT_ONES, 0 } } };

static void add_param(struct model *m, int u, const char *name, int ndim,
                      const int64_t *dim, accel_init_t init)
{
    struct unit *unit = &m->unit[u];
    int j = unit->param_count++;
    accel_tensor_t *p = &m->tensor[u][j];

    if (u == 0)
        snprintf(m->name[u][j], sizeof(m->name[u][j]), "%s", name);
    else
        snprintf(m->name[u][j], sizeof(m->name[u][j]), "h.%d.%s", u - 1, name);
    m->param[u][j] = (struct param){ .unit = u,
                                     .unit_offset = unit->elems,
                                     .lr_scale = 1,
                                     .weight_decay = ndim >= 2 ? 0.1f : 0 };
    *p = (accel_tensor_t){ .dtype = ACCEL_F32,
                           .ndim = ndim,
                           .elems = 1,
                           .name = m->name[u][j],
                           .init = init,
                           .needs_grad = true,
                           .param = &m->param[u][j] };
    for (int d = 0; d < ndim; d++) {
        p->dim[d] = dim[d];
        p->elems *= dim[d];
    }
    unit->elems = (unit->elems + p->elems + 15) / 16 * 16;
    m->list[u][j] = p;
    unit->param = m->list[u];
}

void model_build(struct model *m)
{
    int64_t at = 0;

    memset(m, 0, sizeof(*m));
    m->units = (struct units){ m->unit, UNITS };
    for (int u = 0; u < UNITS; u++) {
        m->unit[u].name = u ? "h" : "";
        for (int j = 0; u == 0 && j < 3; j++)
            add_param(m, u, root_params[j].name, root_params[j].ndim,
                      root_params[j].dim, root_params[j].init);
        for (int j = 0; u > 0 && j < 4; j++)
            add_param(m, u, block_params[j].name, block_params[j].ndim,
                      block_params[j].dim, block_params[j].init);
        m->base[u] = at;
        at += m->unit[u].elems;
    }
}

/* ---- bytes on the wire (the linker puts these in front of comm's own) ------------ */

accel_status_t __real_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);
accel_status_t __real_comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err);
accel_status_t __real_comm_all_reduce(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err);
accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err);
accel_status_t __wrap_comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err);
accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err);

void (*shard_collective)(char what, const void *in, size_t in_bytes, void *out,
                         size_t out_bytes);

static void tell(char what, const void *in, size_t in_bytes, void *out,
                 size_t out_bytes)
{
    if (shard_collective)
        shard_collective(what, in, in_bytes, out, out_bytes);
}

static int64_t wire; /* sent by this rank */
static char trace[256];

static void note(char event)
{
    size_t n = strlen(trace);

    if (n + 1 < sizeof(trace))
        trace[n] = event;
}

accel_status_t __wrap_comm_all_gather(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, accel_error_t *err)
{
    wire += (int64_t)(elems * accel_dtype_bytes(t)) * (comm_size(c) - 1);
    note('g');
    tell('g', NULL, 0, buf, elems * accel_dtype_bytes(t) * (size_t)comm_size(c));
    return __real_comm_all_gather(c, buf, elems, t, err);
}

accel_status_t __wrap_comm_reduce_scatter(struct comm *c, const void *in, float *out,
                                          size_t elems, accel_dtype_t t, float scale,
                                          bool accumulate, accel_error_t *err)
{
    wire += (int64_t)wire_bytes(elems, t) * (comm_size(c) - 1);
    note('r');
    tell('r', in, wire_bytes(elems, t) * (size_t)comm_size(c), out,
         elems * sizeof(*out));
    return __real_comm_reduce_scatter(c, in, out, elems, t, scale, accumulate, err);
}

accel_status_t __wrap_comm_all_reduce(struct comm *c, void *buf, size_t elems,
                                      accel_dtype_t t, enum comm_op op,
                                      accel_error_t *err)
{
    if (t == ACCEL_F32) /* not the few bytes that compare the ranks */
        tell('r', NULL, 0, buf, elems * sizeof(float));
    if (t == ACCEL_F32)
        wire += 2 * (int64_t)(elems / (size_t)comm_size(c) * 4) * (comm_size(c) - 1);
    return __real_comm_all_reduce(c, buf, elems, t, op, err);
}
/* ---- a world's run --------------------------------------------------------------- */

static float noise(int step, int sample, int64_t i)
{
    uint32_t w[4];

    rng_block(11, (uint64_t)step << 32 | (uint32_t)sample, (uint64_t)i, w);
    return (float)(2 * rng_unit(w[0]) - 1);
}

int use_unit(struct boot *b, const struct model *m, struct residency *r, int u,
             accel_dtype_t compute, int step, int sample)
{
    float *g = NULL;
    void *data;

    compute = m->unit[u].types.own ? m->unit[u].types.parameters : compute;
    CHECK(r->want(r->user, u, &data, err));
    if (sample >= 0)
        CHECK(r->grad(r->user, u, &g, err));
    for (int j = 0; g && j < m->unit[u].param_count; j++) {
        const accel_tensor_t *p = m->unit[u].param[j];

        for (int64_t i = p->param->unit_offset; i < p->param->unit_offset + p->elems;
             i++) {
            float x = compute == ACCEL_BF16 ? bf16_to_f32(((bf16_t *)data)[i])
                                            : ((float *)data)[i];

            g[i] += 0.3f * x + noise(step, sample, m->base[u] + i);
        }
    }
    r->done(r->user, u);
    if (sample >= 0)
        note('d');
    return 0;
}

/* Forward root, blocks, root; backward the other way round. */
static int micro_batch(struct boot *b, const struct model *m, struct shard *s,
                       const struct job *job, int step, int a, int accumulate)
{
    struct residency r = shard_residency(s);
    int sample = a * job->world + b->rank;

    for (int u = 0; u <= UNITS; u++) {
        if (use_unit(b, m, &r, u % UNITS, job->compute, step, -1))
            return 1;
    }
    memset(trace, 0, sizeof(trace));
    CHECK(shard_backward_begin(s, accumulate, err));
    for (int u = UNITS; u >= 0; u--) {
        if (use_unit(b, m, &r, u % UNITS, job->compute, step, sample))
            return 1;
    }
    CHECK(shard_backward_end(s, err));
    if (a == accumulate - 1)
        CHECK(shard_reduce(s, 0, err));
    if (b->rank == 0)
        memcpy(job->out->trace, trace, sizeof(trace));
    return 0;
}

/* Index of the first element of a stored tensor in full[kind]; -1: unknown name. */
static int64_t locate(const struct model *m, const char *name, int *kind,
                      const accel_tensor_t **param)
{
    char want[64];
    static const char *const form[3] = { "model/%s", "optim/%s/exp_avg",
                                         "optim/%s/exp_avg_sq" };

    for (int u = 0; u < UNITS; u++) {
        for (int j = 0; j < m->unit[u].param_count; j++) {
            *param = m->unit[u].param[j];
            for (*kind = 0; *kind < 3; (*kind)++) {
                snprintf(want, sizeof(want), form[*kind], (*param)->name);
                if (strcmp(want, name) == 0)
                    return m->base[u] + (*param)->param->unit_offset;
            }
        }
    }
    return -1;
}

/* Copies every element of the boxes to (or from) its place in `full`. */
static int copy_boxes(struct boot *b, const struct model *m, struct shard *s, bool load,
                      float full[3][TOTAL], int hits[3][TOTAL])
{
    accel_ckpt_box_t *box;
    size_t count;

    CHECK(shard_boxes(s, load, &box, &count, err));
    for (size_t k = 0; k < count; k++) {
        const accel_tensor_t *p;
        int kind;
        int64_t base = locate(m, box[k].name, &kind, &p), n = 1;
        float *data = box[k].data;

        if (base < 0 || box[k].ndim != p->ndim || box[k].dtype != ACCEL_F32)
            return 2;
        for (int d = 0; d < p->ndim; d++) {
            n *= box[k].shape[d];
            if (box[k].global_shape[d] != p->dim[d])
                return 3;
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, at = 0, stride = 1;

            for (int d = p->ndim - 1; d >= 0; d--) {
                at += (box[k].offset[d] + rest % box[k].shape[d]) * stride;
                rest /= box[k].shape[d];
                stride *= p->dim[d];
            }
            if (load) {
                data[i] = full[kind][base + at];
            } else {
                full[kind][base + at] = data[i];
                hits[kind][base + at]++;
            }
        }
    }
    free(box);
    return 0;
}

/* Elements of a gathered unit that differ from the whole masters, narrowed to the
 * compute dtype. */
static int differs(const struct model *m, const struct job *job, int u,
                   const void *data)
{
    const accel_dtype_t type =
        m->unit[u].types.own ? m->unit[u].types.parameters : job->compute;
    int wrong = 0;

    for (int64_t i = 0; i < m->unit[u].elems; i++) {
        float x = job->out->full[0][m->base[u] + i];

        wrong += type == ACCEL_F32 ? ((const float *)data)[i] != x
                                   : ((const bf16_t *)data)[i] != f32_to_bf16(x);
    }
    return wrong;
}

/* Any two units may be in use at once, and must not lie on each other. */
static int check_gathered(struct boot *b, const struct model *m, struct shard *s,
                          const struct job *job, struct comm *c)
{
    struct residency r = shard_residency(s);
    int wrong = 0;

    CHECK(comm_barrier(c, err));
    for (int k = 0; k < UNITS * UNITS; k++) {
        int u = k / UNITS, v = k % UNITS;
        void *at_u, *at_v;

        CHECK(r.want(r.user, u, &at_u, err));
        CHECK(r.want(r.user, v, &at_v, err));
        wrong += differs(m, job, u, at_u) + differs(m, job, v, at_v);
        r.done(r.user, u);
        r.done(r.user, v);
    }
    return wrong ? 4 : 0;
}

static int train(struct boot *b, const struct model *m, struct shard *s,
                 const struct job *job)
{
    int accumulate = SAMPLES / job->world;

    for (int t = 1; t <= job->steps; t++) {
        for (int a = 0; a < accumulate; a++) {
            int rc = micro_batch(b, m, s, job, t, a, accumulate);

            if (rc)
                return rc;
        }
        CHECK(shard_grad_sumsq(s, 0, &job->out->sumsq[b->rank], err));
        CHECK(shard_update(s, 0, 0.01f, t, job->decay_only ? 0 : 0.5f, err));
    }
    return 0;
}

int open_groups(struct boot *b, struct comm *c, const struct job *job,
                struct shard_options *o)
{
    o->data = o->copies = NULL;
    if (job->strategy != SHARD_HYBRID && job->strategy != SHARD_HYBRID_ZERO2)
        return 0;
    CHECK(comm_split(c, b->node, b->rank, &o->data, err));
    CHECK(comm_split(c, b->local_rank, b->rank, &o->copies, err));
    return 0;
}

void close_groups(struct shard_options *o)
{
    comm_close(o->copies);
    comm_close(o->data);
}

static int rank_main(struct boot *b, void *arg)
{
    struct job *job = arg;
    const struct shard_optim adamw = { .settings =
                                           optim_defaults((accel_optimizer_t){ 0 }) };
    struct shard_options o = { .strategy = job->strategy,
                               .prefetch = job->prefetch,
                               .precision = { job->compute, job->compute, job->reduce,
                                              job->narrow_copies, false },
                               .optim = &adamw,
                               .optims = 1 };
    struct backend *be, *home;
    struct model m;
    struct shard *s;
    struct comm *c;
    int rc = 0;

    model_build(&m);
    for (int u = 0; u < UNITS; u++) {
        m.unit[u].types =
            (struct plan_types){ job->mixed && u % 2 == job->mixed % 2,
                                 MIXED(job->compute), MIXED(job->reduce) };
    }
    CHECK(comm_open(&c, b, NULL, err));
    if (open_groups(b, c, job, &o))
        return 1;
    CHECK(backend_cpu_open(&be, 0, err));
    CHECK(backend_cpu_open(&home, 0, err));
    o.backend = be;
    o.home = job->offload ? home : NULL;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    if (b->rank == 0)
        shard_memory(s, &job->out->memory);
    if (!job->load)
        shard_init(s, 42);
    if (job->load) {
        rc = copy_boxes(b, &m, s, true, (float(*)[TOTAL])job->load->full, NULL);
        shard_loaded(s);
    }
    wire = 0;
    if (!rc)
        rc = train(b, &m, s, job);
    job->out->wire[b->rank] = wire;
    if (!rc)
        rc = copy_boxes(b, &m, s, false, job->out->full, job->out->hits);
    if (!rc)
        rc = check_gathered(b, &m, s, job, c);
    shard_close(s);
    backend_close(home);
    backend_close(be);
    close_groups(&o);
    comm_close(c);
    return rc;
}

static struct result *shared_result(void)
{
    void *p = mmap(NULL, sizeof(struct result), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

struct result *run(struct job job)
{
    int rc;

    job.out = shared_result();
    rc = fork_world_nodes(job.world, job.nodes ? job.nodes : 1, rank_main, &job, HANG_S,
                          NULL);
    if (rc)
        tap_ok(false, "world %d, %s: status %d", job.world,
               config_strategy_name(job.strategy), rc);
    return job.out;
}

/* ---- gradients by name ----------------------------------------------------------- */

struct gradient_reader {
    const struct model *m;
    float by, *to;
};

static void read_gradient(void *user, const char *name, float *g, int64_t first,
                          int64_t count)
{
    const struct gradient_reader *r = user;

    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < r->m->unit[u].param_count; j++) {
            float *to =
                r->to + r->m->base[u] + r->m->tensor[u][j].param->unit_offset + first;

            for (int64_t i = 0; !strcmp(r->m->name[u][j], name) && i < count; i++)
                to[i] = g[i] *= r->by;
        }
}

accel_status_t shard_world_gradients(struct shard *s, const struct model *m, float by,
                                     float *to, accel_error_t *err)
{
    struct gradient_reader reader = { m, by, to };

    return shard_each_gradient(s, 0, read_gradient, &reader, err);
}
