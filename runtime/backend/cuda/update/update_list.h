/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranges that a launch of an optimizer's kernel steps, and how they are cut into
 * parts for its blocks. An OP has STEP, its constants, and `of`, which picks them from
 * struct optim_step.
 */
#ifndef ACCEL_BACKEND_CUDA_UPDATE_LIST_H
#define ACCEL_BACKEND_CUDA_UPDATE_LIST_H

#include "backend/cuda/update/master_places.h"

/* Ranges and constants are passed by value: this many fit the 4 KiB of a kernel's
 * arguments. A part is what a block works on at a time. */
enum { UPDATE_SPANS = 32, UPDATE_STEPS = 16, UPDATE_PART = 8192 };

/* The ranges of one launch; span[k].step counts in step[]. Parts first[k] .. first[k +
 * 1] - 1 are those of range k. */
template <typename STEP, int SPANS = UPDATE_SPANS> struct update_list {
    struct update_span span[SPANS];
    int64_t first[SPANS + 1];
    STEP step[UPDATE_STEPS];
    int count;
    /* the same for all of a step */
    struct rounding by;
};

/* The range of a part. At most 32: a search by each thread is not worth more. */
template <typename STEP, int SPANS>
static __device__ inline int update_range(const struct update_list<STEP, SPANS> &list,
                                          int64_t part)
{
    int k = 0;

    while (part >= list.first[k + 1])
        k++;
    return k;
}

/* The number in list->step of constants `step`, which are appended where they are new;
 * -1: there is no room. from: the numbers of those in the list. */
template <typename OP, int SPANS>
static int place_step(struct update_list<typename OP::STEP, SPANS> *list, int *from,
                      int *steps, const struct optim_step *k, int step)
{
    int at = 0;

    while (at < *steps && from[at] != step)
        at++;
    if (at == UPDATE_STEPS)
        return -1;
    if (at == *steps) {
        from[(*steps)++] = step;
        list->step[at] = OP::of(k[step]);
    }
    return at;
}

/* Fills the list with as many ranges and constants as it has room for; returns how many
 * ranges. */
template <typename OP, int SPANS>
static int take(struct update_list<typename OP::STEP, SPANS> *list,
                const struct update_span *x, int count, const struct optim_step *k)
{
    int from[UPDATE_STEPS], steps = 0, n = 0;

    list->first[0] = 0;
    list->by.draws = k[0].draws;
    list->by.nearest = k[0].nearest;
    for (; n < count && n < SPANS; n++) {
        struct update_span *to = &list->span[n];

        *to = x[n];
        if (to->step >= 0) {
            to->step = place_step<OP>(list, from, &steps, k, to->step);
            if (to->step < 0)
                break;
        }
        list->first[n + 1] = list->first[n] + (to->n + UPDATE_PART - 1) / UPDATE_PART;
    }
    list->count = n;
    return n;
}

#endif
