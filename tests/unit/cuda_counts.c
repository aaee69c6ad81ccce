/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the stand-in for its counts (cuda_counts.h).
 */
#include "tests/unit/cuda_counts.h"

#include "tests/tap.h"
#include "tests/world/cuda_device.h"

/* Every count is a uint64_t, and there is nothing else in the struct. */
enum { COUNTS = sizeof(struct fakecuda_counts) / sizeof(uint64_t) };

struct fakecuda_counts counted(const struct fakecuda_counts *from)
{
    void (*get)(struct fakecuda_counts *) = NULL;
    union {
        struct fakecuda_counts counts;
        uint64_t each[COUNTS];
    } now = { .each = { 0 } }, then = { .each = { 0 } };

    if (cuda_stand_in("fakecuda_counts_get", &get))
        get(&now.counts);
    if (from)
        then.counts = *from;
    for (int i = 0; i < COUNTS; i++)
        now.each[i] -= then.each[i];
    return now.counts;
}

void is_count(uint64_t got, uint64_t want, const char *what)
{
    void (*get)(struct fakecuda_counts *);

    if (cuda_stand_in("fakecuda_counts_get", &get))
        tap_is_int((long long)got, (long long)want, "%s", what);
    else
        tap_skip(1, "only the stand-in counts");
}
