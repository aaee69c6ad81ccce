/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's event files, read by rules of their own: every record's length and
 * checksums, the latter by the definition bit by bit, and the fields of its event.
 */
#ifndef ACCEL_TESTS_EVENT_READER_H
#define ACCEL_TESTS_EVENT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENT_VALUES = 16, EVENT_BUCKETS = 64 };

struct event_value {
    char tag[256];
    /* number of the field that has the value: 2 simple, 5 histogram, 8 tensor */
    int what;
    float simple;
    char text[4096], plugin[32];
    int dtype;
    double min, max, count, sum, squares;
    double limit[EVENT_BUCKETS], bucket[EVENT_BUCKETS];
    int limits, buckets;
};

struct event {
    double time;
    int64_t step;
    char version[32];
    int session; /* SessionLog.status; 0: none */
    struct event_value value[EVENT_VALUES];
    int values;
};

/* The remainder of the division of polynomials, one bit at a time. */
uint32_t event_crc(const uint8_t *p, size_t n);
/* The next record of data[bytes] from *at on. False: the end, or `*wrong_out` says what
 * is wrong with it. */
bool event_next(const uint8_t *data, size_t bytes, size_t *at, struct event *e_out,
                const char **wrong_out);

#endif
