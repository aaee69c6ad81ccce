/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and the layout of units. In: declarations. Out: names, shapes, offsets.
 * Knows nothing about modules, ranks or values.
 */
#include "tensor/units.h"

#include <stdlib.h>
#include <string.h>

#include "numbers/scaled.h"
#include "tensor/tape.h"

/* Every parameter begins on a cache line of any dtype of 16 bits or more, and with a
 * block of those that share a scale. */
#define ALIGN_ELEMS 32

_Static_assert(ALIGN_ELEMS % SCALED_BLOCK == 0, "no block has two parameters");

/* A parameter and what only parameters have: one allocation. */
struct declared {
    accel_tensor_t tensor;
    struct param param;
};

accel_tensor_t *param_new(struct graph *g, const char *owner, char *name, int ndim,
                          const int64_t *dims, accel_init_t init)
{
    struct declared *p = NULL;
    int64_t elems = 1;

    if (!name) {
        graph_fail(g, A0001, NULL, "use more ranks or a smaller model",
                   "cannot allocate the name of a parameter");
        return NULL;
    }
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS || !dims) {
        graph_fail(g, A0608, NULL, "use 1 to 4 dimensions",
                   "parameter %s of '%s' has %d dimensions", name, owner, ndim);
        goto fail;
    }
    /* 64 times the elements still fit an int64_t, so sizes in bytes never overflow */
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 1 || dims[i] > INT32_MAX ||
            __builtin_mul_overflow(elems, dims[i], &elems) || elems > INT64_MAX / 64) {
            graph_fail(g, A0608, NULL, "every size must be at least 1",
                       "parameter %s of '%s': size %d is %lld", name, owner, i,
                       (long long)dims[i]);
            goto fail;
        }
    if ((int)init.kind < ACCEL_INIT_ZEROS || init.kind > ACCEL_INIT_CONSTANT) {
        graph_fail(g, A0605, NULL, "use a value of accel_init_t",
                   "parameter %s of '%s': unknown initialiser %d", name, owner,
                   (int)init.kind);
        goto fail;
    }
    p = calloc(1, sizeof(*p));
    if (!p) {
        graph_fail(g, A0001, NULL, "use more ranks or a smaller model",
                   "cannot allocate a parameter");
        goto fail;
    }
    p->param = (struct param){ .unit = -1, .seen_as = g->compute, .lr_scale = 1 };
    p->tensor = (accel_tensor_t){ .g = g,
                                  .dtype = ACCEL_F32,
                                  .ndim = ndim,
                                  .elems = elems,
                                  .needs_grad = true,
                                  .name = name,
                                  .init = init,
                                  .param = &p->param };
    memcpy(p->tensor.dim, dims, (size_t)ndim * sizeof(*dims));
    return &p->tensor;
fail:
    free(name);
    return NULL;
}

void param_free(accel_tensor_t *p)
{
    if (p) {
        free((char *)(uintptr_t)p->name);
        free(p->full);
    }
    free(p); /* the start of its struct declared */
}

/* Appends the parameters of one kind, trained or frozen, in order of declaration. */
static void place_params(struct unit *u, int number, bool trained)
{
    for (int i = 0; i < u->param_count; i++) {
        accel_tensor_t *p = u->param[i];

        if (p->needs_grad != trained)
            continue;
        p->param->unit = number;
        p->param->unit_offset = u->elems;
        u->elems += (p->elems + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    }
}

void units_lay_out(struct units *u)
{
    for (int i = 0; i < u->count; i++) {
        struct unit *one = &u->unit[i];
        int64_t trained;

        one->elems = 0;
        place_params(one, i, true);
        trained = one->elems;
        place_params(one, i, false);
        one->frozen = one->elems - trained;
    }
}

void units_types(const struct units *u, struct plan_types *types_out)
{
    for (int i = 0; i < u->count; i++)
        types_out[i] = u->unit[i].types;
}

int units_coded(const struct units *u, struct plan_coded *list,
                accel_tensor_t **param_out)
{
    int n = 0;

    for (int i = 0; i < u->count; i++)
        for (int k = 0; k < u->unit[i].param_count; k++) {
            accel_tensor_t *p = u->unit[i].param[k];

            if (!param_is_codable(p))
                continue;
            if (list)
                list[n] = (struct plan_coded){ i, p->param->unit_offset, p->elems };
            if (param_out)
                param_out[n] = p;
            n++;
        }
    return n;
}

/* All lists move to one new array, for units_free. */
accel_status_t units_append(struct units *u, const struct units *part,
                            accel_error_t *err)
{
    int count = u->count + part->count, params = 0;
    struct unit *unit = calloc((size_t)count, sizeof(*unit));
    accel_tensor_t **all;

    for (int i = 0; i < count; i++)
        params += (i < u->count ? u->unit[i] : part->unit[i - u->count]).param_count;
    all = calloc((size_t)params + 1, sizeof(accel_tensor_t *));
    if (!unit || !all) {
        free(unit);
        free(all);
        return accel_fail_nomem(err, "the list of units",
                                (size_t)params * sizeof(*all));
    }
    for (int i = 0; i < count; i++) {
        unit[i] = i < u->count ? u->unit[i] : part->unit[i - u->count];
        for (int k = 0; k < unit[i].param_count; k++)
            all[k] = unit[i].param[k];
        unit[i].param = all;
        all += unit[i].param_count;
    }
    units_free(u);
    u->unit = unit;
    u->count = count;
    return ACCEL_OK;
}

void units_free(struct units *u)
{
    if (!u || !u->unit)
        return;
    free(u->unit[0].param);
    free(u->unit);
    u->unit = NULL;
    u->count = 0;
}
