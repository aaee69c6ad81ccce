/* SPDX-License-Identifier: Apache-2.0
 *
 * Forked ranks whose collectives are watched: before each one a rank waits until every
 * other has come to the same one, or to the end of the call. Where one of them does
 * something else, the world ends at once: nothing waits for a deadline. In one rank a
 * call of the system, an allocation or the status before an agreement fails.
 * A program that links this wraps $(lockstep_wraps).
 */
#ifndef ACCEL_TESTS_LOCKSTEP_H
#define ACCEL_TESTS_LOCKSTEP_H

#include "accel.h"
#include "tests/world/open_world.h"

enum { LOCKSTEP_RANKS = 2, LOCKSTEP_FAULTS = 512, LOCKSTEP_EXIT = 3 };

/* In every rank, after open_world_join: a call of `name` begins on all ranks. may_tell: a
 * rank that lacks memory ends the run for all, where another call agrees on it. */
void lockstep_begin(const char *name, bool may_tell);
/* Of rank `failing` the calls of this round that can fail are listed, each place of the
 * program once between two collectives: every one; or the first, the last and each
 * status; or the statuses. */
enum lockstep_which { LOCKSTEP_ALL, LOCKSTEP_FEW, LOCKSTEP_STATUSES };
void lockstep_list(int failing, enum lockstep_which which);
/* Fault i of that list happens in this round; false: there is none. */
bool lockstep_fault(int failing, int i);
/* The round ends with this outcome, the same on all ranks: else the world ends. One rank
 * at least says why. */
void lockstep_end(accel_status_t st, const accel_error_t *err);

/* For the parent, before the fork and after the end of a world: how many agreements the
 * listed round had, the fault at which the world ended and its rank, and how many
 * outcomes were wrong. */
void lockstep_start(void);
int lockstep_agreements(void);
int lockstep_at(void);
int lockstep_rank(void);
int lockstep_wrong(void);

/* Every place whose agreement has been failed at, in any world so far: the address behind
 * the call. Of a call that the compiler made a jump it is that of the caller's. */
enum { LOCKSTEP_SITES = 256 };
int lockstep_sites(const void *at_out[LOCKSTEP_SITES]);

#endif
