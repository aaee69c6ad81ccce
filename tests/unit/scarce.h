/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is scarce: one call of the library for memory fails, by --wrap of the
 * linker (scarce_wraps of runtime/tensor/local.mk), and what it holds is counted.
 */
#ifndef ACCEL_TESTS_SCARCE_H
#define ACCEL_TESTS_SCARCE_H

#include <stdbool.h>

/* The nth call from here on fails, in any thread, and none after it; 0: none. */
void scarce_begin(int nth);
/* Between these two no call counts. */
void scarce_pause(void);
void scarce_resume(void);
/* Has it failed? */
bool scarce_end(void);
/* Calls since scarce_begin, without those in a pause. */
int scarce_calls(void);
/* The name of the call that failed last. */
const char *scarce_call(void);

/* Pieces of memory that were asked for and not given back, without those of the arena. */
int scarce_held(void);

#endif
