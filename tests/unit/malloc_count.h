/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what a test program and its libraries allocate: the program that links this
 * has the malloc family of its own, which counts and calls the C library's.
 */
#ifndef ACCEL_TESTS_MALLOC_COUNT_H
#define ACCEL_TESTS_MALLOC_COUNT_H

/* Calls of malloc and its like so far, in any thread. Where a sanitizer has a malloc of
 * its own nothing can be counted, and the test ends as skipped. */
int malloc_calls(void);

#endif
