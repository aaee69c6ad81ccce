/* SPDX-License-Identifier: Apache-2.0
 *
 * One function of two backends on the same inputs: what the CPU gives is what a device
 * must give, within the rounding of its sums, and twice the same bits. Arrays may begin
 * at any element and are watched behind their ends.
 */
#ifndef ACCEL_TESTS_TWIN_H
#define ACCEL_TESTS_TWIN_H

#include "backend/device.h"

#define TWIN_ARRAYS 8

/* What a function is called with beside its arrays; the test says what its numbers
 * mean. */
struct twin_call {
    accel_dtype_t type, other;
    int64_t n, dim[5];
    bool add, flag;
    int act;
    float by;
    const void *more;
};

/* arrays[k] is what the k-th twin_* made, NULL for none. */
typedef void twin_f(const struct backend *be, void *const *arrays,
                    const struct twin_call *c);

struct twin_array {
    accel_dtype_t type;
    int64_t n, shift;
    bool absent;
    void *start; /* values before the call, on the host, with those around them */
};

struct twin {
    struct backend *cpu, *device;
    struct twin_array array[TWIN_ARRAYS];
    int count;
};

/* n values in [low, high), the first at element `shift` of its memory. */
void twin_values(struct twin *t, accel_dtype_t type, int64_t n, int64_t shift,
                 double low, double high);
void twin_none(struct twin *t);
/* Prints one TAP result for the call and forgets the arrays. */
void twin_run(struct twin *t, twin_f *f, const struct twin_call *c, const char *fmt,
              ...) __attribute__((format(printf, 4, 5)));
/* The host's copy of array k, to change before the call. */
void *twin_host(struct twin *t, int k);

void twin_elements(struct twin *t);
void twin_updates(struct twin *t);
void twin_scaled(struct twin *t);
void twin_moves(struct twin *t);
void twin_rows(struct twin *t);
void twin_sums(struct twin *t);

#endif
