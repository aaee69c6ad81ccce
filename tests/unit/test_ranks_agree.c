/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank fails, all ranks end with its message and none waits: 100 rounds in which
 * the rank, its kind of failure and its timing change. Also where all are well, where
 * several fail, where a run has failed, and where the failing rank is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks/ranks_impl.h"
#include "tests/tap.h"
#include "tests/world/ranks_world.h"

enum { ROUNDS = 100 };

static const accel_status_t kinds[] = { ACCEL_EIO, ACCEL_EINVAL, ACCEL_ENOMEM,
                                        ACCEL_ECORRUPT };

/* The round's own text of this rank. */
static accel_status_t fail_so(accel_error_t *err, int round, int rank)
{
    char text[96];

    snprintf(text, sizeof(text), "fetch of sample %d failed on %d", round, rank);
    return accel_error_set(err, kinds[round % 4], text, "check the disk");
}

/* One round: with every rank at another time, through an agreement or through first. */
static void one_round(accel_t *run, int round)
{
    int rank = run->boot.rank, wrong = round % run->boot.size;
    accel_error_t err = { 0 };
    accel_status_t st = ACCEL_OK;
    char want[128];

    if ((round * 7 + rank * 3) % 11 == 0)
        usleep(500);
    if (round % 3 == 2) {
        st = accel_first_begin(run, rank == wrong, &err);
        if (rank == wrong)
            st = fail_so(&err, round, rank);
        st = accel_first_end(run, st, &err);
    } else {
        if (rank == wrong)
            st = fail_so(&err, round, rank);
        st = accel_agree(run, st, &err);
    }
    snprintf(want, sizeof(want),
             rank == wrong ? "%sfetch of sample %d failed on %d"
                           : "rank %s: fetch of sample %d failed on %d",
             rank == wrong ? "" : (char[]){ (char)('0' + wrong), '\0' }, round, wrong);
    ranks_check(run,
                st == kinds[round % 4] && err.code == st && !strcmp(err.text, want) &&
                    !strcmp(err.hint, "check the disk"),
                "round %d: %d '%s'", round, (int)st, err.text);
    ranks_check(run, run->status == ACCEL_OK, "the run has not failed");
}

static void rounds_rank(accel_t *run, void *arg)
{
    (void)arg;
    for (int round = 0; round < ROUNDS; round++)
        one_round(run, round);
}

/* ---- other outcomes -------------------------------------------------------------- */

/* A function that has no status to return. */
static void give_up_rank(accel_t *run, void *arg)
{
    accel_error_t err = { 0 };
    accel_status_t st;
    const int rank = run->boot.rank;

    (void)arg;
    ranks_check(run, accel_give_up(NULL, ACCEL_EIO, &err) == ACCEL_EINVAL, "no run");
    ranks_check(run, accel_give_up(run, ACCEL_OK, &err) == ACCEL_EINVAL, "no failure");
    run->graph.inside = "a function";
    if (rank == 1)
        ranks_check(run, accel_give_up(run, ACCEL_EIO, NULL) == ACCEL_EIO, "given up");
    run->graph.inside = NULL;
    memset(&err, 0, sizeof(err));
    st = accel_barrier(run, &err);
    ranks_check(run,
                st == ACCEL_EIO &&
                    !strcmp(err.text, rank == 1 ? "failed without a message"
                                                : "rank 1: failed without a message"),
                "given up: %s", err.text);
}

static void outcomes_rank(accel_t *run, void *arg)
{
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    ranks_check(run, accel_agree(run, ACCEL_OK, &err) == ACCEL_OK && !err.code,
                "all are well");
    /* the lowest of those that failed speaks */
    st = run->boot.rank >= 1 ? fail_so(&err, run->boot.rank, run->boot.rank) : ACCEL_OK;
    st = accel_agree(run, st, &err);
    ranks_check(run, st == kinds[1] && strstr(err.text, "failed on 1"), "several: %s",
                err.text);
    /* each rank that failed without a text still says who it is */
    memset(&err, 0, sizeof(err));
    st = accel_agree(run, run->boot.rank == 1 ? ACCEL_EIO : ACCEL_OK,
                     run->boot.rank == 1 ? NULL : &err);
    ranks_check(run,
                st == ACCEL_EIO &&
                    (run->boot.rank == 1 ||
                     !strcmp(err.text, "rank 1: failed without a message")),
                "no text: %s", err.text);
    /* a run that has failed tells the others why */
    if (run->boot.rank == 0) {
        run->status = ACCEL_EIO;
        accel_fail(&run->failure, A0801, NULL, "the disk of rank 0 is gone");
    }
    memset(&err, 0, sizeof(err));
    st = accel_first_begin(run, run->boot.rank == 0, &err);
    st = accel_first_end(run, st, &err);
    ranks_check(run, st == ACCEL_EIO && strstr(err.text, "the disk of rank 0 is gone"),
                "a failed run: %s", err.text);
}

/* Rank 1 leaves without a word: the others learn it from its absence, not the clock. */
static void gone_rank(accel_t *run, void *arg)
{
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    if (run->boot.rank == 1)
        return;
    st = accel_agree(run, ACCEL_OK, &err);
    ranks_check(run, st == ACCEL_EPEER && strstr(err.text, "rank 1"), "%s", err.text);
    ranks_check(run, run->status == ACCEL_EPEER, "and the run has failed");
    st = accel_agree(run, fail_so(&err, 4, 0), &err);
    ranks_check(run, st == kinds[0] && strstr(err.text, "sample 4"),
                "the own failure is the better text: %s", err.text);
}

/* ---- print ----------------------------------------------------------------------- */

static char printed[512];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    snprintf(printed + strlen(printed), sizeof(printed) - strlen(printed), "%d<%s>",
             (int)level, line);
}

static void print_rank(accel_t *run, void *arg)
{
    (void)arg;
    run->log = (struct accel_log){ keep_line, NULL, ACCEL_LOG_INFO };
    accel_print(run, "accuracy %.2f\n", 0.5);
    accel_print(run, "two\nlines");
    accel_print(run, "%s", "");
    ranks_check(
        run,
        !strcmp(printed, run->boot.rank ? "" : "2<accuracy 0.50>2<two>2<lines>2<>"),
        "printed %s", printed);
}

int main(void)
{
    for (int n = 1; n <= 4; n++)
        tap_is_int(ranks_world(n, false, rounds_rank, NULL), 0,
                   "100 rounds with one failure on %d ranks", n);
    for (int n = 2; n <= 4; n++) {
        tap_is_int(ranks_world(n, false, outcomes_rank, NULL), 0,
                   "outcomes on %d ranks", n);
        tap_is_int(ranks_world(n, false, gone_rank, NULL), 0, "one of %d is gone", n);
        tap_is_int(ranks_world(n, false, give_up_rank, NULL), 0, "one of %d gives up",
                   n);
        tap_is_int(ranks_world(n, false, print_rank, NULL), 0, "one of %d prints", n);
    }
    accel_print(NULL, "nowhere");
    return tap_done();
}
