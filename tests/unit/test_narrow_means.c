/* SPDX-License-Identifier: Apache-2.0
 *
 * Local SGD of what is stored in a narrow form: masters and moments become float32,
 * their mean and narrow again, SHARD_MEAN_ELEMS of them at a time. Units around one and
 * two such pieces end with the bits of a single piece.
 */
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"
#include "tests/world/shard_world.h"

struct scene {
    accel_dtype_t masters;
    accel_moments_t moments;
    int64_t elems;
};

/* One parameter, which is the unit. */
struct model_of_one {
    accel_tensor_t tensor, *list[1];
    struct param param;
    struct unit unit;
    struct units units;
};

static void build(struct model_of_one *m, int64_t elems)
{
    memset(m, 0, sizeof(*m));
    m->param = (struct param){ .lr_scale = 1 };
    m->tensor = (accel_tensor_t){ .dtype = ACCEL_F32,
                                  .ndim = 1,
                                  .dim = { elems },
                                  .elems = elems,
                                  .name = "w",
                                  .init = { ACCEL_INIT_NORMAL, 0.5f },
                                  .needs_grad = true,
                                  .param = &m->param };
    m->list[0] = &m->tensor;
    m->unit.name = "";
    m->unit.param = m->list;
    m->unit.param_count = 1;
    m->unit.elems = elems;
    m->units = (struct units){ &m->unit, 1 };
}

/* Array k of the unit's state as float32, or its masters for k = -1. */
static void read_array(const struct shard *s, int k, float *to)
{
    const struct shard_unit *u = &s->layout.unit[0];
    const struct shard_trainer *t = &s->store.trainer[0];

    if (k < 0 && s->o.precision.masters == ACCEL_BF16)
        s->be->widen(s->be, to, shard_master_at(s, u->at), ACCEL_BF16, u->state);
    else if (k < 0)
        shard_read_masters(s, s->be, u->at, u->state, ACCEL_F32, to);
    else if (t->form == ACCEL_MOMENTS_FLOAT32)
        memcpy(to, shard_state_at(t, k, u->state_at), (size_t)u->state * sizeof(*to));
    else
        shard_widen_state(s->be, to, shard_array_at(t, k, u->state_at),
                          optim_state_is_square(&t->o.settings, k), 0, u->state);
}

/* The same array becomes those numbers, all at once. */
static void write_array(const struct shard *s, int k, const float *from)
{
    const struct shard_unit *u = &s->layout.unit[0];
    const struct shard_trainer *t = &s->store.trainer[0];
    const size_t bytes = (size_t)u->state * sizeof(*from);

    if (k < 0 && shard_has_narrow_masters(s))
        shard_narrow_masters(s, u->at, u->state, from);
    else if (k < 0)
        memcpy(shard_master_at(s, u->at), from, bytes);
    else if (t->form == ACCEL_MOMENTS_FLOAT32)
        memcpy(shard_state_at(t, k, u->state_at), from, bytes);
    else
        shard_narrow_state(s->be, shard_array_at(t, k, u->state_at), 0, from,
                           optim_state_is_square(&t->o.settings, k), u->state);
}

/* Each rank steps with gradients of its own. */
static int step_apart(struct boot *b, struct shard *s, int64_t elems)
{
    struct residency r = shard_residency(s);
    float *g;

    CHECK(shard_backward_begin(s, 1, err));
    CHECK(r.grad(r.user, 0, &g, err));
    for (int64_t i = 0; i < elems; i++)
        g[i] = (float)((i * 37 + b->rank * 11) % 101 - 50) / 64;
    CHECK(shard_backward_end(s, err));
    CHECK(shard_reduce(s, 0, err));
    CHECK(shard_update(s, 0, 0.05f, 1, 1.0f, err));
    return 0;
}

/* What the meeting leaves is the mean of both ranks, narrowed once. */
static int array_wrong(struct boot *b, struct shard *s, struct comm *c, int k)
{
    const int64_t n = s->layout.unit[0].state;
    const size_t bytes = (size_t)n * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    int wrong = 0;

    read_array(s, k, want);
    CHECK(comm_all_reduce(c, want, (size_t)n, ACCEL_F32, COMM_SUM, err));
    for (int64_t i = 0; i < n; i++)
        want[i] *= 0.5f;
    CHECK(k < 0 ? shard_meet(s, err) : shard_meet_state(s, err));
    read_array(s, k, got);
    write_array(s, k, want);
    read_array(s, k, want);
    for (int64_t i = 0; i < n; i++)
        wrong += got[i] != want[i];
    if (wrong)
        fprintf(stderr, "# rank %d: array %d of %lld: %d wrong\n", b->rank, k,
                (long long)n, wrong);
    free(want);
    free(got);
    return wrong > 0;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct scene *p = arg;
    const struct shard_optim adamw = { .settings = optim_defaults((accel_optimizer_t){
                                           .moments = p->moments }) };
    struct shard_options o = { .strategy = SHARD_NONE,
                               .local = true,
                               .optim = &adamw,
                               .optims = 1,
                               .precision = { .parameters =
                                                  p->masters ? ACCEL_BF16 : ACCEL_F32,
                                              .masters = p->masters } };
    struct model_of_one m;
    struct backend *be;
    struct shard *s;
    struct comm *c;
    int wrong = 0;

    build(&m, p->elems);
    CHECK(comm_open(&c, b, NULL, err));
    CHECK(backend_cpu_open(&be, 1, err));
    o.backend = be;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 1);
    if (step_apart(b, s, p->elems))
        return 1;
    for (int k = -1; k < s->store.trainer[0].states; k++)
        wrong += array_wrong(b, s, c, k);
    shard_close(s);
    backend_close(be);
    comm_close(c);
    return wrong;
}

int main(void)
{
    static const int64_t sizes[] = {
        SHARD_MEAN_ELEMS - 64,     SHARD_MEAN_ELEMS,     SHARD_MEAN_ELEMS + 64,
        2 * SHARD_MEAN_ELEMS - 64, 2 * SHARD_MEAN_ELEMS, 2 * SHARD_MEAN_ELEMS + 64,
    };
    static const struct scene forms[] = {
        { ACCEL_F32, ACCEL_MOMENTS_FLOAT32, 0 },
        { ACCEL_BF16, ACCEL_MOMENTS_FLOAT32, 0 },
        { ACCEL_F16, ACCEL_MOMENTS_8BIT, 0 },
        { ACCEL_F32, ACCEL_MOMENTS_8BIT, 0 },
        { ACCEL_F32, ACCEL_MOMENTS_FP8, 0 },
    };

    for (size_t f = 0; f < ACCEL_ARRAY_SIZE(forms); f++)
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(sizes); i++) {
            struct scene p = forms[f];

            p.elems = sizes[i];
            tap_is_int(fork_world(2, rank_main, &p, HANG_S), 0,
                       "masters %s, moments %d, a unit of %lld",
                       accel_dtype_name(p.masters), (int)p.moments, (long long)p.elems);
        }
    return tap_done();
}
