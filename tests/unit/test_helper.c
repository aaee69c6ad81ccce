/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap/helper: one thread makes all calls, one that never returns is left behind
 * with its thread, and the next call gets another.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "bootstrap/helper.h"
#include "tests/tap.h"

#define CALLS 100

struct call {
    struct helper_call base;
    pthread_t made_by;
    int *release;        /* pipe; NULL: the call returns at once */
    _Atomic int dropped; /* times */
};

static void make(struct helper_call *base)
{
    struct call *call = (struct call *)base;
    char byte;

    if (call->release && read(call->release[0], &byte, 1) != 1)
        return;
    call->made_by = pthread_self();
}

static void drop(struct helper_call *base)
{
    atomic_fetch_add(&((struct call *)base)->dropped, 1);
}

static int64_t after_ms(int64_t ms)
{
    return clock_ns() + ms * 1000000;
}

static void test_one_thread(void)
{
    struct helper h = { 0 };
    pthread_t first = { 0 };
    int failed = 0, others = 0, dropped = 0;

    for (int i = 0; i < CALLS; i++) {
        struct call call = { .base = { make, drop } };

        failed += helper_run(&h, &call.base, after_ms(60000)) != 0;
        if (i == 0)
            first = call.made_by;
        others += !pthread_equal(call.made_by, first);
        dropped += atomic_load(&call.dropped);
    }
    tap_ok(failed == 0 && dropped == 0, "%d calls return and stay their caller's",
           CALLS);
    tap_is_int(others, 0, "one thread makes them all");
    tap_ok(!pthread_equal(first, pthread_self()), "which is not the caller's");
    helper_stop(&h);
    tap_ok(!h.thread, "and ends when told so");
    helper_stop(&h);
}

/* A call that returns after all is dropped once, by its own thread. */
static void test_abandoned(void)
{
    int release[2];
    struct call stuck = { .base = { make, drop }, .release = release };
    struct call next = { .base = { make, drop } };
    struct helper h = { 0 };
    int64_t start = clock_ns();

    if (pipe(release) != 0) {
        tap_ok(false, "pipe");
        return;
    }
    tap_is_int(helper_run(&h, &stuck.base, after_ms(50)), ETIMEDOUT,
               "a call that does not return is abandoned");
    tap_ok(clock_ns() - start >= 50000000, "not before its deadline");
    tap_ok(!h.thread, "and its thread with it");
    tap_is_int(helper_run(&h, &next.base, after_ms(60000)), 0,
               "the next call gets a thread of its own");
    tap_is_int(atomic_load(&stuck.dropped), 0, "the first one is still under way");
    tap_is_int((int)write(release[1], "x", 1), 1, "until it returns");
    while (!atomic_load(&stuck.dropped) && clock_ns() - start < 60000000000)
        usleep(1000);
    tap_is_int(atomic_load(&stuck.dropped), 1, "it is then dropped");
    tap_ok(!pthread_equal(stuck.made_by, next.made_by), "by another thread");
    helper_stop(&h);
    close(release[0]);
    close(release[1]);
}

int main(void)
{
    test_one_thread();
    test_abandoned();
    return tap_done();
}
