/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of dot products of a few rows of a with rows of b, once for every way to
 * multiply. The file that includes it has defined INLINE, `number` (a's type) and
 * dots: two dot products that share one operand, or with NULL the first alone.
 */

/* One row of a. For long rows of b, two distant rows per pass: a then passes through
 * the first-level cache, where it competes with all that is read of b, half as
 * often. */
INLINE void one_row(float *out, const number *a, const char *b, int64_t row_bytes,
                    int64_t rows, int64_t k, const accel_dtype_t t)
{
    int64_t half = row_bytes > CPU_SHORT_ROW ? rows / 2 : 0;

    for (int64_t j = 0; j < half; j++)
        dots(out + j, out + half + j, a, a, b + j * row_bytes,
             b + (half + j) * row_bytes, k, t);
    for (int64_t j = 2 * half; j < rows; j++)
        dots(out + j, NULL, a, NULL, b + j * row_bytes, NULL, k, t);
}

/* m rows of a with `rows` rows of b, in pairs of rows of a that share each load of b:
 * out[r * stride + j]. */
INLINE void few_rows(float *out, int64_t stride, const number *a, int64_t lda,
                     int64_t m, const void *b, int64_t row_bytes, int64_t rows,
                     int64_t k, const accel_dtype_t t)
{
    const char *at = b;

    if (m == 1) {
        one_row(out, a, b, row_bytes, rows, k, t);
        return;
    }
    for (int64_t j = 0; j < rows; j++, at += row_bytes) {
        float *to = out + j;
        int64_t r = 0;

        for (; r + 2 <= m; r += 2)
            dots(to + r * stride, to + (r + 1) * stride, a + r * lda, a + (r + 1) * lda,
                 at, at, k, t);
        if (r < m)
            dots(to + r * stride, NULL, a + r * lda, NULL, at, NULL, k, t);
    }
}
