/* SPDX-License-Identifier: Apache-2.0
 *
 * Gram-Schmidt on the columns of a row-major matrix. Few columns: all of a row is in
 * one cache line, so that walking down a column costs what walking the matrix does.
 */
#include "powersgd/powersgd_impl.h"

#include <math.h>

#include "numbers/rng.h"

/* Less than this share of a column left: it is rounding of those before it. */
#define DEPENDENT 1e-5

static double column_dot(const float *m, int64_t rows, int64_t cols, int64_t a,
                         int64_t b)
{
    double sum = 0;

    for (int64_t i = 0; i < rows; i++)
        sum += (double)m[i * cols + a] * (double)m[i * cols + b];
    return sum;
}

/* Column c *= by, or with 0 becomes zero even where it is infinite. */
static void column_scale(float *m, int64_t rows, int64_t cols, int64_t c, double by)
{
    for (int64_t i = 0; i < rows; i++)
        m[i * cols + c] = by == 0 ? 0.0f : (float)(by * m[i * cols + c]);
}

/* Column c -= share * column b */
static void column_subtract(float *m, int64_t rows, int64_t cols, int64_t c, int64_t b,
                            double share)
{
    for (int64_t i = 0; i < rows; i++)
        m[i * cols + c] = (float)(m[i * cols + c] - share * m[i * cols + b]);
}

/* Twice is enough: what rounding leaves after the first pass is gone after the second
 * (Giraud et al. 2005). */
int64_t orthogonalize(float *m, int64_t rows, int64_t cols)
{
    int64_t zeros = 0;

    for (int64_t c = 0; c < cols; c++) {
        const double before = sqrt(column_dot(m, rows, cols, c, c));
        double norm;

        for (int again = 0; again < 2; again++)
            for (int64_t b = 0; b < c; b++)
                column_subtract(m, rows, cols, c, b, column_dot(m, rows, cols, c, b));
        norm = sqrt(column_dot(m, rows, cols, c, c));
        /* written so that NaN is not taken for a column */
        if (!(norm > DEPENDENT * before) || isinf(norm)) {
            column_scale(m, rows, cols, c, 0);
            zeros++;
        } else {
            column_scale(m, rows, cols, c, 1 / norm);
        }
    }
    return zeros;
}

/* Box and Muller 1958; a number per block wastes bits, but draws are rare. */
static float normal_draw(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];

    rng_block(seed, stream, index, w);
    return (float)(sqrt(-2 * log(rng_unit(w[0]))) *
                   cos(2 * 3.14159265358979323846 * rng_unit(w[1])));
}

void draw_columns(float *m, int64_t rows, int64_t cols, uint64_t seed, uint64_t stream)
{
    for (int64_t c = 0; c < cols; c++) {
        if (column_dot(m, rows, cols, c, c) != 0)
            continue;
        for (int64_t i = 0; i < rows; i++)
            m[i * cols + c] = normal_draw(seed, stream, (uint64_t)(i * cols + c));
    }
}
