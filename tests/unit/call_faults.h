/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of what looks at the disk: calls that fail, by --wrap of the linker
 * (call_faults_wrap of checkpoint/local.mk).
 */
#ifndef TESTS_CALL_FAULTS_H
#define TESTS_CALL_FAULTS_H

#include <stdint.h>
#include <sys/types.h>

struct call_fault {
    const char *call, *name; /* NULL: none; name: what its path ends in */
    int error, times;
    int met;            /* so often */
    const char *vanish; /* the directory that is renamed as soon as it is opened */
};
extern struct call_fault fault;

/* The next `times` calls named `call` of what ends in `name` fail with `error`. */
void fail_next(const char *call, const char *name, int error, int times);
void no_fault(void);

/* Told about each call, with the path as far as it is known. NULL: nobody is. */
extern void (*call_seen)(const char *call, const char *path);

/* The pauses between tries: told apart by their length, not slept. */
extern int64_t paused_ms;

/* The call itself, for tests that hold something open. */
int __real_open(const char *path, int flags, mode_t mode);

#endif
