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

#include "between/between_impl.h"
#include "tests/tap.h"
#include "tests/unit/ranks_world.h"

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

static int rounds_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);

    (void)arg;
    if (!run)
        return 1;
    for (int round = 0; round < ROUNDS; round++)
        one_round(run, round);
    return ranks_close(run);
}

/* ---- other outcomes -------------------------------------------------------------- */

static int outcomes_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    if (!run)
        return 1;
    ranks_check(run, accel_agree(run, ACCEL_OK, &err) == ACCEL_OK && !err.code,
                "all are well");
    /* the lowest of those that failed speaks */
    st = b->rank >= 1 ? fail_so(&err, b->rank, b->rank) : ACCEL_OK;
    st = accel_agree(run, st, &err);
    ranks_check(run, st == kinds[1] && strstr(err.text, "failed on 1"), "several: %s",
                err.text);
    /* each rank that failed without a text still says who it is */
    memset(&err, 0, sizeof(err));
    st = accel_agree(run, b->rank == 1 ? ACCEL_EIO : ACCEL_OK,
                     b->rank == 1 ? NULL : &err);
    ranks_check(
        run,
        st == ACCEL_EIO &&
            (b->rank == 1 || !strcmp(err.text, "rank 1: failed without a message")),
        "no text: %s", err.text);
    /* a run that has failed tells the others why */
    if (b->rank == 0) {
        run->status = ACCEL_EIO;
        accel_fail(&run->failure, A0801, NULL, "the disk of rank 0 is gone");
    }
    memset(&err, 0, sizeof(err));
    st = accel_first_begin(run, b->rank == 0, &err);
    st = accel_first_end(run, st, &err);
    ranks_check(run, st == ACCEL_EIO && strstr(err.text, "the disk of rank 0 is gone"),
                "a failed run: %s", err.text);
    return ranks_close(run);
}

/* Rank 1 leaves without a word: the others learn it from its absence, not the clock. */
static int gone_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    if (!run)
        return 1;
    if (b->rank == 1)
        return ranks_close(run);
    st = accel_agree(run, ACCEL_OK, &err);
    ranks_check(run, st == ACCEL_EPEER && strstr(err.text, "rank 1"), "%s", err.text);
    ranks_check(run, run->status == ACCEL_EPEER, "and the run has failed");
    st = accel_agree(run, fail_so(&err, 4, 0), &err);
    ranks_check(run, st == kinds[0] && strstr(err.text, "sample 4"),
                "the own failure is the better text: %s", err.text);
    return ranks_close(run);
}

/* ---- print ----------------------------------------------------------------------- */

static char printed[512];

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    snprintf(printed + strlen(printed), sizeof(printed) - strlen(printed), "%d<%s>",
             (int)level, line);
}

static int print_rank(struct boot *b, void *arg)
{
    accel_t *run = ranks_open(b, false);

    (void)arg;
    if (!run)
        return 1;
    run->log = (struct accel_log){ keep_line, NULL, ACCEL_LOG_INFO };
    accel_print(run, "accuracy %.2f\n", 0.5);
    accel_print(run, "two\nlines");
    accel_print(run, "%s", "");
    ranks_check(run,
                !strcmp(printed, b->rank ? "" : "2<accuracy 0.50>2<two>2<lines>2<>"),
                "printed %s", printed);
    return ranks_close(run);
}

int main(void)
{
    for (int n = 1; n <= 4; n++)
        tap_is_int(fork_world(n, rounds_rank, NULL, 60), 0,
                   "100 rounds with one failure on %d ranks", n);
    for (int n = 2; n <= 4; n++) {
        tap_is_int(fork_world(n, outcomes_rank, NULL, 60), 0, "outcomes on %d ranks",
                   n);
        tap_is_int(fork_world(n, gone_rank, NULL, 60), 0, "one of %d is gone", n);
        tap_is_int(fork_world(n, print_rank, NULL, 60), 0, "one of %d prints", n);
    }
    accel_print(NULL, "nowhere");
    return tap_done();
}
