/* SPDX-License-Identifier: Apache-2.0
 *
 * The middle of what a bench has measured.
 */
#ifndef ACCEL_BENCH_MEDIAN_H
#define ACCEL_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int median_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The least comes first. */
static inline void median_sort(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), median_order);
}

/* Sorts them, too. */
static inline double median(double *v, int n)
{
    median_sort(v, n);
    return v[n / 2];
}

#endif
