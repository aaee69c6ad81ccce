/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_objects.h: what a program sets for each of its optimizers beside accel.h.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_OBJECTS_H
#define ACCEL_OBJECTS_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- schedules: the learning rate of each step --------------------------------------
 * A schedule has a position, 0 at first, which moves on with the optimizer's steps. Its
 * rate is a function of the position and of the optimizer's lr, computed in double. The
 * formulas are those of transformers.optimization (the get_*_schedule_* functions) and,
 * for ONE_CYCLE and PLATEAU, of torch.optim.lr_scheduler. */

typedef enum accel_schedule_kind {
    ACCEL_SCHEDULE_CONSTANT = 0,
    ACCEL_SCHEDULE_LINEAR = 1,
    ACCEL_SCHEDULE_COSINE = 2,
    ACCEL_SCHEDULE_RESTARTS = 3, /* cosines with hard restarts */
    ACCEL_SCHEDULE_POLYNOMIAL = 4,
    ACCEL_SCHEDULE_ONE_CYCLE = 5,
    ACCEL_SCHEDULE_INVERSE_SQRT = 6,
    ACCEL_SCHEDULE_PLATEAU = 7, /* lowered when a metric stops improving */
    ACCEL_SCHEDULE_OWN = 8,     /* a function of the program */
} accel_schedule_kind_t;

/* The factor on the optimizer's lr at `position`: finite and not negative, the same
 * whenever it is asked. */
typedef double (*accel_schedule_f)(void *user, int64_t position);

/* PLATEAU: after more than `patience` metrics in a row that are not better than the
 * best, the rate is multiplied by `factor`; the next `cooldown` metrics do not count.
 * As in torch, a step down of 1e-8 or less is not taken. */
typedef struct accel_plateau {
    int maximize;     /* 1: larger metrics are better; 0: smaller ones */
    double factor;    /* above 0, below 1; 0: 0.1 */
    int64_t patience; /* 0: 10; negative: none, the first bad metric counts */
    double threshold; /* what counts as better; 0: 1e-4; negative: any difference */
    int absolute;     /* 1: the threshold is a difference; 0: a share of the best */
    int64_t cooldown; /* 0: none */
} accel_plateau_t;

/* Zeros stand for the defaults: a constant rate. With r the optimizer's lr, p the
 * position plus `first`, w = warmup, s = steps, e = r * end and x = (p - w) / (s - w),
 * at most 1, the rate is r p / w where p < w (ONE_CYCLE has its own rise) and then
 * CONSTANT:     r
 * LINEAR:       e + (r - e) (1 - x)
 * COSINE:       e + (r - e) (1 + cos(2 pi cycles x)) / 2
 * RESTARTS:     e + (r - e) (1 + cos(pi ((cycles x) mod 1))) / 2; e where x is 1
 * POLYNOMIAL:   e + (r - e) (1 - x)^power
 * INVERSE_SQRT: e + (r - e) / sqrt((p - w + t) / t), t = timescale
 * ONE_CYCLE:    half a cosine from r / div up to r at position u - 1, u = warmup or
 *               0.3 s, and another one down to r / div / final_div at s - 1
 * PLATEAU:      r, lowered by metrics, never below e
 * OWN:          r own(user, p) */
typedef struct accel_schedule {
    accel_schedule_kind_t kind;
    int64_t steps;  /* the whole schedule, with the warm-up; 0 where it has no end */
    int64_t warmup; /* 0: none */
    /* p of the first step. 0: a warm-up begins with rate 0, as in transformers; 1: with
     * r / warmup. */
    int first;
    double end;            /* lowest rate as a share of r, 0 .. 1 */
    double cycles;         /* COSINE: 0: 0.5; RESTARTS: 0: 1 */
    double power;          /* POLYNOMIAL; 0: 1 */
    double timescale;      /* INVERSE_SQRT; 0: warmup, or 10000 without one */
    double div, final_div; /* ONE_CYCLE; 0: 25 and 1e4 */
    accel_plateau_t plateau;
    accel_schedule_f own;
    void *user; /* must outlive the run */
} accel_schedule_t;

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
