/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a function on the CPU, and on a device twice, and compares all arrays (twin.h).
 */
#include "tests/unit/twin.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "tests/tap.h"

/* Elements behind an array that no call may touch; none where reading them is found,
 * too. */
#ifdef __SANITIZE_ADDRESS__
#define GUARD 0
#else
#define GUARD 24
#endif

static uint64_t drawn = 1;

static double draw(void)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (double)(drawn >> 33) / 2147483648.0;
}

static void put(void *to, int64_t i, accel_dtype_t type, double v)
{
    switch (type) {
    case ACCEL_F32:
        ((float *)to)[i] = (float)v;
        break;
    case ACCEL_BF16:
        ((bf16_t *)to)[i] = f32_to_bf16((float)v);
        break;
    case ACCEL_I32:
        ((int32_t *)to)[i] = (int32_t)floor(v);
        break;
    case ACCEL_U16:
        ((uint16_t *)to)[i] = (uint16_t)v;
        break;
    case ACCEL_U8:
        ((uint8_t *)to)[i] = (uint8_t)v;
        break;
    case ACCEL_F64:
        ((double *)to)[i] = v;
        break;
    case ACCEL_I64:
        ((int64_t *)to)[i] = (int64_t)floor(v);
        break;
    default: /* no arrays of what only travels */
        break;
    }
}

static size_t bytes_of(const struct twin_array *a)
{
    return (size_t)(a->shift + a->n + GUARD) * accel_dtype_bytes(a->type);
}

void twin_values(struct twin *t, accel_dtype_t type, int64_t n, int64_t shift,
                 double low, double high)
{
    struct twin_array *a = &t->array[t->count++];

    *a = (struct twin_array){ .type = type, .n = n, .shift = shift };
    a->start = malloc(bytes_of(a));
    for (int64_t i = 0; i < a->shift + n + GUARD; i++)
        put(a->start, i, type, low + draw() * (high - low));
}

void twin_none(struct twin *t)
{
    t->array[t->count++] = (struct twin_array){ .absent = true };
}

void *twin_host(struct twin *t, int k)
{
    struct twin_array *a = &t->array[k];

    return (char *)a->start + (size_t)a->shift * accel_dtype_bytes(a->type);
}

/* ---- a call ---------------------------------------------------------------------- */

/* What every array holds after the call, on the host; false: the backend failed. */
static bool call(struct twin *t, struct backend *be, twin_f *f,
                 const struct twin_call *c, void **after, accel_error_t *err)
{
    void *base[TWIN_ARRAYS] = { NULL }, *arrays[TWIN_ARRAYS] = { NULL };
    accel_status_t status = ACCEL_OK;

    for (int k = 0; k < t->count && !status; k++) {
        struct twin_array *a = &t->array[k];

        if (a->absent)
            continue;
        status = be->alloc(be, MEMORY_WORK, bytes_of(a), &base[k], err);
        if (status)
            break;
        be->from_host(be, base[k], a->start, bytes_of(a));
        arrays[k] = (char *)base[k] + (size_t)a->shift * accel_dtype_bytes(a->type);
    }
    if (!status) {
        f(be, arrays, c);
        status = be->sync(be, err);
    }
    for (int k = 0; k < t->count; k++) {
        if (base[k] && !status)
            be->to_host_bytes(be, after[k], base[k], bytes_of(&t->array[k]));
        be->free(be, base[k]);
    }
    return !status;
}

/* ---- comparison ------------------------------------------------------------------ */

static double value(const void *p, int64_t i, accel_dtype_t type)
{
    return type == ACCEL_F32 ? ((const float *)p)[i]
                             : bf16_to_f32(((const bf16_t *)p)[i]);
}

/* How far apart in units of what is allowed: float32 to 1e-5 of a value, bfloat16 to
 * two of its last places; sums that cancel to a little of the largest value. */
static double distance(const struct twin_array *a, const void *got, const void *want)
{
    const int64_t n = a->shift + a->n + GUARD;
    double rel = a->type == ACCEL_F32 ? 1e-5 : 0x1p-7, largest = 0, worst = 0;

    if (a->type != ACCEL_F32 && a->type != ACCEL_BF16)
        return memcmp(got, want, bytes_of(a)) ? INFINITY : 0;
    for (int64_t i = a->shift; i < a->shift + a->n; i++)
        if (isfinite(value(want, i, a->type)))
            largest = fmax(largest, fabs(value(want, i, a->type)));
    for (int64_t i = 0; i < n; i++) {
        double g = value(got, i, a->type), w = value(want, i, a->type);
        double far = fabs(g - w) / (rel * fabs(w) + 1e-6 * largest + 1e-37);

        if (g == w || (isnan(g) && isnan(w)))
            continue;
        worst = isnan(far) ? INFINITY : fmax(worst, far);
    }
    return worst;
}

static bool around_same(const struct twin_array *a, const void *after)
{
    const size_t size = accel_dtype_bytes(a->type),
                 end = (size_t)(a->shift + a->n) * size;

    return !memcmp(after, a->start, (size_t)a->shift * size) &&
           !memcmp((const char *)after + end, (const char *)a->start + end,
                   GUARD * size);
}

static void judge(const struct twin *t, const char *what, void *const *cpu,
                  void *const *device, void *const *again)
{
    double worst = 0;

    for (int k = 0; k < t->count; k++) {
        const struct twin_array *a = &t->array[k];
        double far;

        if (a->absent)
            continue;
        far = distance(a, device[k], cpu[k]);
        if (!around_same(a, device[k])) {
            tap_ok(false, "%s: array %d is changed outside of its bounds", what, k);
            return;
        }
        if (memcmp(device[k], again[k], bytes_of(a))) {
            tap_ok(false, "%s: array %d has other bits the second time", what, k);
            return;
        }
        worst = fmax(worst, far);
    }
    tap_ok(worst <= 1, "%s: %.2g of what is allowed", what, worst);
}

void twin_run(struct twin *t, twin_f *f, const struct twin_call *c, const char *fmt,
              ...)
{
    struct backend *const be[3] = { t->cpu, t->device, t->device };
    void *after[3][TWIN_ARRAYS] = { { NULL } };
    accel_error_t err = { 0 };
    char what[160];
    bool good = true;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    for (int i = 0; i < 3 && good; i++) {
        for (int k = 0; k < t->count; k++)
            if (!t->array[k].absent)
                after[i][k] = malloc(bytes_of(&t->array[k]));
        good = call(t, be[i], f, c, after[i], &err);
    }
    if (good)
        judge(t, what, after[0], after[1], after[2]);
    else
        tap_ok(false, "%s: %s", what, err.text);
    for (int k = 0; k < t->count; k++) {
        for (int i = 0; i < 3; i++)
            free(after[i][k]);
        free(t->array[k].start);
    }
    t->count = 0;
}
