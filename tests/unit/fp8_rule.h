/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit formats by their formulas, in double, and the CPU in the ways whose bits are
 * to agree.
 */
#ifndef ACCEL_TESTS_FP8_RULE_H
#define ACCEL_TESTS_FP8_RULE_H

#include <math.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/panels.h"
#include "numbers/minifloat.h"

struct fp8_format {
    accel_dtype_t type;
    int mantissa, least; /* exponent of the least normal number */
    double largest;
};

static const struct fp8_format fp8_formats[] = { { ACCEL_F8E4M3, 3, -6, 448 },
                                                 { ACCEL_F8E5M2, 2, -14, 57344 } };

static inline f8_t fp8_code(const struct fp8_format *f, float x)
{
    return (f8_t)(f->type == ACCEL_F8E4M3 ? f32_to_full_e4m3(x) : f32_to_full_e5m2(x));
}

static inline float fp8_number(const struct fp8_format *f, f8_t code)
{
    return f->type == ACCEL_F8E4M3 ? e4m3_to_f32(code) : e5m2_to_f32(code);
}

/* The nearest number of the format, the even one of two; NaN stays. */
static inline double fp8_nearest(const struct fp8_format *f, double x)
{
    double size = fmin(fabs(x), f->largest), step;
    int exponent;

    if (isnan(x))
        return x;
    frexp(size, &exponent);
    exponent = size == 0 || exponent - 1 < f->least ? f->least : exponent - 1;
    step = ldexp(1, exponent - f->mantissa);
    return copysign(nearbyint(size / step) * step, x);
}

static inline bool fp8_same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* The best instruction set, the plain one, and one between with three threads. */
static inline void fp8_backends_open(struct backend *be[3])
{
    for (int i = 0; i < 3; i++)
        if (backend_cpu_open(&be[i], i == 2 ? 3 : 1, NULL))
            exit(1);
    ((struct cpu_state *)be[1]->state)->kernel = panel_kernel_of(TILE_GENERIC);
    if (tile_isa() >= TILE_AVX2)
        ((struct cpu_state *)be[2]->state)->kernel = panel_kernel_of(TILE_AVX2);
}

static inline void fp8_backends_close(struct backend *const be[3])
{
    for (int i = 0; i < 3; i++)
        backend_close(be[i]);
}

#endif
