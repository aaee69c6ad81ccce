/* SPDX-License-Identifier: Apache-2.0
 *
 * Every place of the source where ranks agree, against those where a test made one of
 * them fail.
 */
#ifndef ACCEL_TESTS_AGREEMENT_SITES_H
#define ACCEL_TESTS_AGREEMENT_SITES_H

/* A check per place, after the worlds of lockstep.h have ended: one of them failed there,
 * or a row says which test does. In a build that makes calls jumps there is none. */
void agreement_sites_check(void);

#endif
