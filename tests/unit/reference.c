/* SPDX-License-Identifier: Apache-2.0
 *
 * See reference.h. Plain loops, nothing shared with the code under test.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/unit/reference.h"

void ref_embedding(double *y, const int32_t *ids, const double *table,
                   const double *positions, int rows, int time, int c)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < c; i++)
            y[r * c + i] =
                table[ids[r] * c + i] + (positions ? positions[r % time * c + i] : 0.0);
}

void ref_layernorm(double *y, const double *x, const double *gain, const double *bias,
                   int rows, int c, double eps)
{
    for (int r = 0; r < rows; r++) {
        const double *row = x + r * c;
        double mean = 0, var = 0;

        for (int i = 0; i < c; i++)
            mean += row[i] / c;
        for (int i = 0; i < c; i++)
            var += (row[i] - mean) * (row[i] - mean) / c;
        for (int i = 0; i < c; i++)
            y[r * c + i] = (row[i] - mean) / sqrt(var + eps) * gain[i] + bias[i];
    }
}

void ref_linear(double *y, const double *x, const double *w, const double *bias,
                int rows, int in, int out, int gelu)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < out; o++) {
            double v = bias ? bias[o] : 0.0;

            for (int i = 0; i < in; i++)
                v += x[r * in + i] * w[o * in + i];
            if (gelu)
                v = 0.5 * v *
                    (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                              (v + 0.044715 * v * v * v)));
            y[r * out + o] = v;
        }
}

void ref_attention(double *y, const double *qkv, int b, int t, int c, int heads)
{
    int d = c / heads;
    double *p = malloc((size_t)t * sizeof(*p));

    for (int s = 0; p && s < b * heads * t; s++) {
        int q = s % t, h = s / t % heads, n = s / t / heads;
        const double *at = qkv + (long)n * t * 3 * c + h * d;
        double max = -INFINITY, sum = 0;

        for (int k = 0; k <= q; k++) {
            p[k] = 0;
            for (int i = 0; i < d; i++)
                p[k] += at[q * 3 * c + i] * at[k * 3 * c + c + i];
            p[k] /= sqrt(d);
            max = p[k] > max ? p[k] : max;
        }
        for (int k = 0; k <= q; k++)
            sum += p[k] = exp(p[k] - max);
        for (int i = 0; i < d; i++) {
            double v = 0;

            for (int k = 0; k <= q; k++)
                v += p[k] / sum * at[k * 3 * c + 2 * c + i];
            y[((long)n * t + q) * c + h * d + i] = v;
        }
    }
    free(p);
}

double ref_cross_entropy(const double *x, const double *w, const int32_t *targets,
                         int rows, int c, int v)
{
    double loss = 0, *logit = malloc((size_t)v * sizeof(*logit));
    int n = 0;

    for (int r = 0; logit && r < rows; r++) {
        double max = -INFINITY, sum = 0;

        if (targets[r] < 0)
            continue;
        for (int o = 0; o < v; o++) {
            logit[o] = 0;
            for (int i = 0; i < c; i++)
                logit[o] += x[r * c + i] * w[o * c + i];
            max = logit[o] > max ? logit[o] : max;
        }
        for (int o = 0; o < v; o++)
            sum += exp(logit[o] - max);
        loss += max + log(sum) - logit[targets[r]];
        n++;
    }
    free(logit);
    return n ? loss / n : 0.0;
}
