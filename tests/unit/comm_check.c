/* SPDX-License-Identifier: Apache-2.0
 *
 * Started once per rank by srun or mpirun: bootstrap, then every collective against the
 * scalar reference, and groups. Rank 0 prints one line of facts; any failure is a
 * nonzero exit.
 *   comm_check [--backend NAME] [--elems N] [--lose RANK]
 * --lose: that rank ends without a word after the bootstrap; the others must name it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "tests/tap.h"
#include "tests/unit/comm_ref.h"

static int fail(const struct boot *b, const accel_error_t *err)
{
    char text[2048];

    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "rank %d: %s\n", b->rank, text);
    return accel_exit_code(err->code);
}

static int lose_one(struct boot *b, struct comm *c, int lost)
{
    accel_error_t err = { 0 };
    char name[32];

    if (b->rank == lost)
        raise(SIGKILL);
    snprintf(name, sizeof(name), "rank %d", lost);
    if (comm_barrier(c, &err) == ACCEL_OK || err.code != ACCEL_EPEER)
        return 1;
    printf("rank %d: %s\n", b->rank, err.text);
    return 0;
}

int main(int argc, char **argv)
{
    struct comm_options o = { .timeout_ms = HANG_S * 1000 };
    size_t elems = 70001;
    int lost = -1, rc;
    uint64_t hash = 1;
    struct boot b;
    struct comm *c;
    accel_error_t err = { 0 };

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--backend") == 0)
            o.backend = argv[i + 1];
        else if (strcmp(argv[i], "--elems") == 0)
            elems = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--lose") == 0)
            lost = atoi(argv[i + 1]);
    }
    if (lost >= 0)
        o.timeout_ms = 40000;
    if (boot_open(&b, 60000, &err) != ACCEL_OK)
        return fail(&b, &err);
    if (comm_open(&c, &b, &o, &err) != ACCEL_OK)
        return fail(&b, &err);
    /* leaving has its own time, however long ago that was */
    b.deadline_ns = clock_ns();
    if (boot_leave(&b, &err) != ACCEL_OK)
        return fail(&b, &err);
    rc = lost >= 0 ? lose_one(&b, c, lost) : comm_ref_check(c, elems, &hash);
    if (rc == 0 && lost < 0)
        rc = comm_ref_groups(c);
    if (rc == 0 && lost < 0 && b.rank == 0)
        printf("method=%s size=%d nodes=%d local=%d backend=%s job=%s hash=%016llx\n",
               b.method, b.size, b.nodes, b.local_size, comm_backend(c), b.job,
               (unsigned long long)hash);
    comm_close(c);
    boot_free(&b);
    return rc;
}
