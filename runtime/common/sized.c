/* SPDX-License-Identifier: Apache-2.0
 *
 * Public structs of the size that the program was compiled with: checked, read, filled.
 */
#include "common/sized.h"

#include <string.h>

/* No struct grows by more. What is beyond is a `bytes` that was never set. */
#define MOST_GROWTH 4096

static size_t bytes_of(const void *theirs)
{
    size_t bytes;

    memcpy(&bytes, theirs, sizeof(bytes));
    return bytes;
}

accel_status_t sized_check(const struct sized *type, const void *theirs,
                           accel_error_t *err)
{
    const size_t bytes = bytes_of(theirs);
    char cure[160];

    if (bytes < type->first || bytes > type->now + MOST_GROWTH ||
        bytes % _Alignof(size_t)) {
        text_format(cure, sizeof(cure), "write \"%s x = {.bytes = sizeof x, ...}\"",
                    type->type);
        return accel_fail_at(err, A0913, type->type, cure,
                             "its first member, bytes, is %zu and not its size", bytes);
    }
    return ACCEL_OK;
}

static accel_status_t check_rest(const struct sized *type, const unsigned char *theirs,
                                 accel_error_t *err)
{
    for (size_t i = type->now; i < bytes_of(theirs); i++)
        if (theirs[i])
            return accel_fail_at(
                err, A0914, type->type,
                "use the accel that the program was built for, or a "
                "later one",
                "the program sets a member that accel %s does not have "
                "(byte %zu of %zu)",
                accel_version(), i, bytes_of(theirs));
    return ACCEL_OK;
}

accel_status_t sized_read(const struct sized *type, void *own_out, const void *theirs,
                          accel_error_t *err)
{
    accel_status_t st;

    if (theirs) {
        ACCEL_CHECK(st, sized_check(type, theirs, err));
        ACCEL_CHECK(st, check_rest(type, theirs, err));
    }
    memset(own_out, 0, type->now);
    if (theirs)
        memcpy(own_out, theirs,
               bytes_of(theirs) < type->now ? bytes_of(theirs) : type->now);
    memcpy(own_out, &type->now, sizeof(type->now));
    return ACCEL_OK;
}

void sized_write(const struct sized *type, void *theirs_out, const void *own)
{
    const size_t bytes = bytes_of(theirs_out);

    memset(theirs_out, 0, bytes);
    memcpy(theirs_out, own, bytes < type->now ? bytes : type->now);
    memcpy(theirs_out, &bytes, sizeof(bytes));
}
