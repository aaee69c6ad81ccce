/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of what touches the disk: the program's own definitions of the system's
 * calls, which libraries find first. Each asks a hook before it goes on to the real
 * one.
 */
#ifndef TESTS_DISK_SHIM_H
#define TESTS_DISK_SHIM_H

/* Before a call named `call` (an open that may create is "create" or "createat", a
 * rename without flags "renameat") that names `name`, or "" where it has but a
 * descriptor, `fd`. 0: go on; else the errno that it fails with. Not asked about calls
 * while a hook is at work. NULL: all go on. */
extern int (*disk_hook)(const char *call, const char *name, int fd);
/* Set by a hook that lets a write go on: it writes the first half of its bytes. */
extern __thread int disk_short;
/* After an fsync that succeeded. */
extern void (*disk_synced)(int fd);
/* Pauses asked for by nanosleep, in whole milliseconds together; none is made while the
 * hook is set. */
extern long disk_paused_ms;

#endif
