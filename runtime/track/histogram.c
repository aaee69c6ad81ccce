/* SPDX-License-Identifier: Apache-2.0
 *
 * Values in, a histogram of equal buckets out, with the sums that let readers compute
 * mean and variance. Every value is in the same bucket whatever the order of values.
 */
#include <math.h>

#include "track/track.h"

/* Limits and sums of the finite values. */
static void count_values(const float *values, int64_t n, struct histogram *h)
{
    for (int64_t i = 0; i < n; i++) {
        double v = values[i];

        if (!isfinite(v)) {
            h->not_finite++;
            continue;
        }
        if (h->count == 0 || v < h->min)
            h->min = v;
        if (h->count == 0 || v > h->max)
            h->max = v;
        h->sum += v;
        h->sum_squares += v * v;
        h->count++;
    }
}

/* The bucket by its width, corrected where rounding put the value past an edge. */
static int bucket_of(const struct histogram *h, double v)
{
    int i = (int)((v - h->min) / (h->max - h->min) * h->buckets);

    if (i >= h->buckets)
        i = h->buckets - 1;
    while (i > 0 && v < h->edge[i])
        i--;
    while (i < h->buckets - 1 && v >= h->edge[i + 1])
        i++;
    return i;
}

void histogram_of(const float *values, int64_t n, struct histogram *h_out)
{
    struct histogram *h = h_out;

    *h = (struct histogram){ 0 };
    count_values(values, n, h);
    if (h->count == 0)
        return;
    if (h->min == h->max) {
        h->buckets = 1;
        h->edge[0] = h->min - 0.5;
        h->edge[1] = h->max + 0.5;
        h->in[0] = h->count;
        return;
    }
    h->buckets = TRACK_BUCKETS;
    for (int i = 0; i < h->buckets; i++)
        h->edge[i] = h->min + (h->max - h->min) * i / h->buckets;
    h->edge[h->buckets] = h->max;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            h->in[bucket_of(h, values[i])]++;
}
