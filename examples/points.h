/* SPDX-License-Identifier: Apache-2.0
 * points: what gan.c and distill.c share: numbers to learn from, which are a function
 * of their index, and a network of two layers. */
#ifndef POINTS_H
#define POINTS_H

#include <stdio.h>
#include <stdlib.h>
#include <accel.h>

/* Number n of all numbers, in [-1, 1): a hash of n (splitmix64), so no state, and the
 * same on every rank and in every life. */
static float points_draw(uint64_t n)
{
    uint64_t x = n + 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (float)((x ^ x >> 31) >> 40) / 8388608.0f - 1.0f;
}

/* x [B, in] -> silu(x w1^T + b1) w2^T + b2, [B, out]. */
struct points_net {
    accel_tensor_t *w1, *b1, *w2, *b2;
};

static accel_tensor_t *points_forward(accel_module_t *m, accel_tensor_t *const *in,
                                      int n)
{
    const struct points_net *net = accel_module_state(m);
    accel_tensor_t *h = accel_linear(in[0], net->w1, net->b1, ACCEL_ACT_SILU);

    (void)n;
    return accel_linear(h, net->w2, net->b2, ACCEL_ACT_NONE);
}

static accel_module_t *points_net(accel_t *run, int64_t in, int64_t wide, int64_t out)
{
    static const accel_class_t cls = { sizeof(cls), "Net", points_forward,
                                       sizeof(struct points_net) };
    const accel_init_t some = { ACCEL_INIT_UNIFORM, 0.5f };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);
    struct points_net *net = accel_module_state(m);

    if (!net) /* accel_prepare_all says why */
        return NULL;
    net->w1 = accel_param(m, "in.weight", 2, (int64_t[]){ wide, in }, some);
    net->b1 = accel_param(m, "in.bias", 1, &wide, some);
    net->w2 = accel_param(m, "out.weight", 2, (int64_t[]){ out, wide }, some);
    net->b2 = accel_param(m, "out.bias", 1, &out, some);
    return m;
}

/* [batch, width] numbers from number `first` on. */
static accel_tensor_t *points_input(accel_t *run, int batch, int width, uint64_t first)
{
    const int64_t dims[] = { batch, width };
    float *host = malloc((size_t)batch * (size_t)width * sizeof(*host));
    accel_tensor_t *t;

    for (int i = 0; host && i < batch * width; i++)
        host[i] = points_draw(first + (uint64_t)i);
    t = accel_input(run, ACCEL_F32, 2, dims, host, NULL);
    free(host);
    return t;
}

#endif
