/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs of the size that a program was compiled with: of today, older, newer, and sizes
 * that no program can have.
 */
#include <string.h>

#include "common/sized.h"
#include "tests/tap.h"

/* As it was in its first release, is today, and will be. */
struct first {
    size_t bytes;
    int64_t steps;
    int batch;
};
struct today {
    size_t bytes;
    int64_t steps;
    int batch;
    double scale;
};
struct later {
    size_t bytes;
    int64_t steps;
    int batch;
    double scale;
    void *hook, *user;
};

static const struct sized *kind(void)
{
    static const struct sized today = { "accel_job_t",
                                        offsetof(struct today, batch) + sizeof(int),
                                        sizeof(struct today) };

    return &today;
}

static void test_read(void)
{
    const struct first old = { .bytes = sizeof(old), .steps = 7, .batch = 3 };
    const struct today same = { sizeof(same), 7, 3, 0.5 };
    const struct later new = { .bytes = sizeof(new), .steps = 7, .scale = 2 };
    struct today own;

    memset(&own, 0xff, sizeof(own));
    tap_ok(!sized_read(kind(), &own, &old, NULL) && own.bytes == sizeof(own) &&
               own.steps == 7 && own.batch == 3 && own.scale == 0,
           "an older program does not set the new member");
    tap_ok(!sized_read(kind(), &own, &same, NULL) && own.batch == 3 && own.scale == 0.5,
           "one of today does");
    tap_ok(!sized_read(kind(), &own, &new, NULL) && own.bytes == sizeof(own) &&
               own.steps == 7 && own.scale == 2,
           "a newer one may leave out what is newer");
    tap_ok(!sized_read(kind(), &own, NULL, NULL) && own.bytes == sizeof(own) &&
               own.steps == 0 && own.scale == 0,
           "no struct: all zero");
}

static void test_refused(void)
{
    static const size_t bad[] = {
        0,
        1,
        sizeof(size_t),
        sizeof(struct first) - 8,
        sizeof(struct today) + 1,
        1 << 20,
        SIZE_MAX,
    };
    struct today own = { .steps = 5 }, theirs = { 0 };
    struct later new = { .bytes = sizeof(new) };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        theirs.bytes = bad[i];
        tap_ok(sized_read(kind(), &own, &theirs, &err) == ACCEL_EINVAL &&
                   err.message == 913 && own.steps == 5,
               "%zu bytes: %s", bad[i], err.text);
    }
    tap_is_str(err.where, "accel_job_t", "the place is the type");
    tap_ok(strstr(err.hint, "accel_job_t x = {.bytes = sizeof x"), "the cure: %s",
           err.hint);
    new.user = &new;
    tap_ok(sized_read(kind(), &own, &new, &err) == ACCEL_EUNSUPPORTED &&
               err.message == 914 && own.steps == 5,
           "a member that is newer than the library: %s", err.text);
}

static void test_write(void)
{
    const struct today own = { 1, 7, 3, 0.5 };
    struct {
        struct first filled;
        int64_t behind;
    } old = { { .bytes = sizeof(old.filled) }, 99 };
    struct later new = { .bytes = sizeof(new), .hook = &old };

    sized_write(kind(), &old.filled, &own);
    tap_ok(old.filled.bytes == sizeof(old.filled) && old.filled.steps == 7 &&
               old.filled.batch == 3 && old.behind == 99,
           "an older program gets what it has room for");
    sized_write(kind(), &new, &own);
    tap_ok(new.bytes == sizeof(new) && new.batch == 3 && new.scale == 0.5 && !new.hook,
           "a newer one gets zeros in what is newer");
}

int main(void)
{
    test_read();
    test_refused();
    test_write();
    return tap_done();
}
