/* SPDX-License-Identifier: Apache-2.0
 *
 * TAP from C: plan/ok/is/diag/skip. Output goes to stdout; read by prove and automake.
 */
#ifndef ACCEL_TAP_H
#define ACCEL_TAP_H

#include <stdbool.h>

/* With the address sanitizer each access takes its time. What it can find is in every line
 * once: tests then leave out repetitions that touch no other memory. */
#ifdef __SANITIZE_ADDRESS__
#define TAP_SANITIZED true
#else
#define TAP_SANITIZED false
#endif

/* Seconds after which whatever a test waits for hangs. No more is meant: a busy machine is
 * ten times slower than an idle one. */
enum { HANG_S = 300 };

void tap_plan(int tests);              /* known beforehand; else tap_done alone */
void tap_skip_all(const char *reason); /* prints 1..0 # SKIP reason and exits 0 */
bool tap_ok(bool pass, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool tap_is_int(long long got, long long want, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool tap_is_str(const char *got, const char *want, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* |got - want| <= rel * max(|want|, tiny) */
bool tap_is_close(double got, double want, double rel, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void tap_skip(int tests, const char *reason);
int tap_open_files(void); /* descriptors of this process: how many are open */
void tap_diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int tap_done(void); /* prints the plan if none; exit status */

#endif
