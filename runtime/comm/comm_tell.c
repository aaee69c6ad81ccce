/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a rank gave up, told to the others. In: the first failure of this rank. Out: the
 * error with which ranks that wait for it end. A communicator and all that were split
 * from it tell and hear in one place, the root: whoever waits, in whichever group, for
 * ranks that wait for the failed one, ends as well. Costs nothing until a rank fails.
 */
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"

/* From hearing a reason to ending a wait whose peers are all there. They may have
 * learned of the failure in the collective that this rank still waits in, and their
 * messages may be on their way. */
#define HEAR_NS INT64_C(200000000)

/* A rank that was told passes the first reason on: it may reach the others sooner. */
void comm_tell(struct comm *c, const accel_error_t *why)
{
    struct comm *root = c->root;
    struct comm_reason said;

    if (!root || root->told)
        return;
    root->told = true;
    /* every byte travels */
    memset(&said, 0, sizeof(said));
    said.from = root->rank;
    said.error = *why;
    if (!root->failed) {
        root->failed = true;
        root->failure = *why;
    }
    if (root->ops->tell)
        root->ops->tell(root, root->heard_ns ? &root->heard : &said);
}

void comm_abandon(struct comm *c, const accel_error_t *why)
{
    if (c && !c->failed)
        comm_tell(c, why);
}

accel_status_t comm_hear(struct comm *c, accel_status_t st, accel_error_t *err)
{
    struct comm *root = c->root;
    const accel_error_t *why;

    if (!root || !root->ops->hear)
        return st;
    if (!root->heard_ns && root->ops->hear(root, &root->heard)) {
        error_end_texts(&root->heard.error);
        root->heard_ns = clock_ns();
    }
    if (!root->heard_ns || (st == ACCEL_OK && clock_ns() - root->heard_ns < HEAR_NS))
        return st;
    why = &root->heard.error;
    /* a text of full length is cut at its end */
    return accel_fail_from(err, why, "rank %d: %.700s", root->heard.from, why->text);
}
