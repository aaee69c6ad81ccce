/* SPDX-License-Identifier: Apache-2.0
 *
 * What every fuzz target of config/ demands: a config that is accepted survives its
 * round trip; one that is refused has messages with a place and nothing that steers a
 * terminal.
 */
#ifndef ACCEL_TESTS_FUZZ_CHECK_H
#define ACCEL_TESTS_FUZZ_CHECK_H

#include <stdlib.h>
#include <string.h>

#include "config/config.h"

static inline void fuzz_check_config(const struct config *c)
{
    static char text[16 << 10], again[16 << 10];
    static struct config back;

    /* What would be too long to travel is not accepted in the first place. */
    if (config_encode(c, text, sizeof(text), NULL) ||
        config_decode(text, &back, NULL) ||
        config_encode(&back, again, sizeof(again), NULL) || strcmp(text, again))
        abort();
}

static inline void fuzz_check_messages(const struct config_diags *d,
                                       const accel_error_t *err)
{
    if (!d->errors || !err->text[0] || !err->where[0])
        abort();
    for (size_t i = 0; i < d->count; i++) {
        if (strlen(d->item[i].text) > 4096)
            abort();
        for (const char *s = d->item[i].text; *s; s++)
            if (((unsigned char)*s < 0x20 && *s != '\n') || *s == 0x7f)
                abort();
    }
}

#endif
