/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an id of a batch is, in words: ops that run on the CPU say it at once, the CUDA
 * module when the host next waits. In: the id's row, and the micro-batch. Out: the end
 * of a message.
 */
#ifndef ACCEL_BACKEND_ID_PLACE_H
#define ACCEL_BACKEND_ID_PLACE_H

#include <stdint.h>
#include <stdio.h>

/* ": position 5 of sequence 1, micro-batch 2 of 4" into out, which is returned. time:
 * rows of a sequence; 0: there are no sequences. micros below 2: only one. */
static inline const char *id_place(char *out, size_t len, int64_t row, int64_t time,
                                   int micro, int micros)
{
    int n = 0;

    out[0] = '\0';
    if (time > 0)
        n = snprintf(out, len, ": position %lld of sequence %lld",
                     (long long)(row % time), (long long)(row / time));
    if (micros > 1 && n >= 0 && (size_t)n < len)
        snprintf(out + n, len - (size_t)n, "%s micro-batch %d of %d",
                 time > 0 ? "," : ":", micro, micros);
    return out;
}

#endif
