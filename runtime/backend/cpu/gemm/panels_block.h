/* SPDX-License-Identifier: Apache-2.0
 *
 * The micro-kernel of panels.h, once for every instruction set. The file that includes
 * it has defined TARGET, INLINE, ROWS (6 or 14), the type `vector`, WIDTH (its floats)
 * and load_vector, store_vector, zero_vector, add_vectors, all_lanes and multiply_add.
 * ROWS x 2 vectors of sums stay in registers while k runs.
 */
enum { UNROLL = 4 };

/* One k: two vectors of b, and each number of a in all lanes. */
INLINE void one_k(vector sum[ROWS][2], const float *a, const float *b, const int rows)
{
    vector left = load_vector(b), right = load_vector(b + WIDTH);

#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        vector x = all_lanes(a + i);

        sum[i][0] = multiply_add(sum[i][0], x, left);
        sum[i][1] = multiply_add(sum[i][1], x, right);
    }
}

/* `rows` is a constant of the caller, so that no sum leaves its register. While the
 * sums run, the rows of the next c and a part of what is packed next come nearer. */
INLINE void block(const struct panel_step *s, const int rows)
{
    const float *a = s->a, *b = s->b;
    float *c = s->c, *next = s->next_c, *last = next + rows * s->ldc;
    struct panel_ahead ahead = *s->ahead;
    int64_t k = s->k, step = s->b_step;
    vector sum[ROWS][2];

#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = zero_vector();
    for (; k >= UNROLL; k -= UNROLL) {
        if (next != last) {
            __builtin_prefetch(next, 1);
            __builtin_prefetch(next + WIDTH, 1);
            next += s->ldc;
        }
        panel_prefetch(&ahead);
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++, b += step)
            one_k(sum, a + i * rows, b, rows);
        a += UNROLL * rows;
    }
    for (; k > 0; k--, a += rows, b += step)
        one_k(sum, a, b, rows);
    *s->ahead = ahead;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        if (s->add) {
            sum[i][0] = add_vectors(load_vector(c + i * s->ldc), sum[i][0]);
            sum[i][1] = add_vectors(load_vector(c + i * s->ldc + WIDTH), sum[i][1]);
        }
        store_vector(c + i * s->ldc, sum[i][0]);
        store_vector(c + i * s->ldc + WIDTH, sum[i][1]);
    }
}

#define CASE(n)                                                                        \
    case n:                                                                            \
        block(s, n);                                                                   \
        break

TARGET static void multiply_block(const struct panel_step *s)
{
    switch (s->rows) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
#if ROWS > 6
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
        CASE(13);
        CASE(14);
#endif
    }
}
