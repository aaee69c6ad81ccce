/* SPDX-License-Identifier: Apache-2.0
 *
 * The first check of the self-test: does every rank agree with the launcher and
 * with all others on where it is? In: the run, the launcher's variables. Out:
 * one line with the map.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/selftest/selftest.h"

/* Where one rank sits, as it tells rank 0. Sent as bytes: all
 * ranks run this program. */
struct seat {
    int node, local_rank, local_size, cores;
    char host[64];
};

/* Compares the launcher's variables of this task with the bootstrap. An
 * mpirun inside a job passes on Slurm's variables of its own daemons, so only
 * one of the two is asked. */
static accel_status_t compare_launcher(const struct boot *b, accel_error_t *err)
{
    const struct {
        const char *mpirun, *slurm;
        int is;
    } facts[] = {
        { "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", b->rank },
        { "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", b->size },
        { "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", b->local_rank },
        { "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, b->local_size },
        { NULL, "SLURM_STEP_NUM_NODES", b->nodes },
    };
    /* Open MPI's own variables tell that its mpirun started this process. */
    bool mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL;

    /* A process on its own may have stale variables of the shell
     * it was started from. */
    if (strcmp(b->method, "pmix") != 0)
        return ACCEL_OK;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(facts); i++) {
        const char *name = mpirun ? facts[i].mpirun : facts[i].slurm;
        long says = name ? env_long(name, facts[i].is) : facts[i].is;

        /* Two launchers are mixed, or a variable was set by hand. */
        if (says != facts[i].is)
            return accel_fail(err, A0061,
                              "start all ranks with one srun or one mpirun, and do not "
                              "set such variables by hand",
                              "%s is %ld, but the bootstrap found %ld", name, says,
                              (long)facts[i].is);
    }
    return ACCEL_OK;
}

/* Rank 0: every place of every node is taken once, and the ranks of a node are on one
 * host. count[n] is the next free place of node n, since ranks count node by node. */
static accel_status_t compare_places(const struct boot *b, const struct seat *p,
                                     accel_error_t *err)
{
    int *count = calloc((size_t)b->nodes, sizeof(*count));
    accel_status_t st = ACCEL_OK;

    if (!count)
        return accel_fail_nomem(err, "the map", (size_t)b->nodes * sizeof(*count));
    for (int r = 0; st == ACCEL_OK && r < b->size; r++) {
        int first = 0;

        if (p[r].node < 0 || p[r].node >= b->nodes ||
            p[r].local_rank != count[p[r].node]++)
            st = accel_fail(
                err, A0061, "report it with the output of `accel env`",
                "rank %d reports local rank %d on node %d, where local rank %d is free",
                r, p[r].local_rank, p[r].node,
                p[r].node >= 0 && p[r].node < b->nodes ? count[p[r].node] - 1 : -1);
        while (st == ACCEL_OK && p[first].node != p[r].node)
            first++;
        if (st == ACCEL_OK && strcmp(p[first].host, p[r].host) != 0)
            st = accel_fail(err, A0061, "report it with the output of `accel env`",
                            "ranks %d and %d share node %d but are on %s and %s", first,
                            r, p[r].node, p[first].host, p[r].host);
    }
    for (int r = 0; st == ACCEL_OK && r < b->size; r++)
        if (count[p[r].node] != p[r].local_size)
            st = accel_fail(err, A0061, "report it with the output of `accel env`",
                            "rank %d counts %d ranks on its node, but there are %d", r,
                            p[r].local_size, count[p[r].node]);
    free(count);
    return st;
}

/* "4 ranks on 2 nodes (n1: 0-1, n2: 2-3), pmix, ucx, at least 2 cores each". On many
 * nodes the list stops at half of the buffer, for the rest of the line. */
static void describe_map(const struct selftest *t, const struct seat *p, char *out,
                         size_t len)
{
    const struct boot *b = &t->run->boot;
    struct strbuf s = { 0 };
    int least = p[0].cores;

    strbuf_printf(&s, "%d rank%s on %d node%s (", b->size, b->size == 1 ? "" : "s",
                  b->nodes, b->nodes == 1 ? "" : "s");
    for (int r = 0, end; r < b->size && s.len < len / 2; r = end) {
        for (end = r + 1; end < b->size && p[end].node == p[r].node;)
            end++;
        strbuf_printf(&s, end - r > 1 ? "%s%s: %d-%d" : "%s%s: %d", r ? ", " : "",
                      p[r].host, r, end - 1);
        if (end < b->size && s.len >= len / 2)
            strbuf_printf(&s, ", ...");
    }
    for (int r = 1; r < b->size; r++)
        least = p[r].cores < least ? p[r].cores : least;
    strbuf_printf(&s, "), %s, %s, %s%d core%s each", b->method,
                  comm_backend(t->run->comm), b->size > 1 ? "at least " : "", least,
                  least == 1 ? "" : "s");
    if (!s.failed)
        snprintf(out, len, "%s", s.s);
    strbuf_free(&s);
}

/* The gather happens on every rank, whatever compare_launcher found: a rank that left
 * early would leave rank 0 waiting. */
accel_status_t check_map(struct selftest *t, struct check *c, accel_error_t *err)
{
    const struct boot *b = &t->run->boot;
    struct seat mine = { b->node, b->local_rank, b->local_size,
                         t->run->place.topo.cores, "" };
    size_t *sizes = calloc((size_t)b->size, sizeof(*sizes));
    void *all = NULL;
    accel_error_t bad = { 0 };
    accel_status_t st, own = compare_launcher(b, &bad);

    if (!sizes)
        return accel_fail_nomem(err, "the map", (size_t)b->size * sizeof(*sizes));
    snprintf(mine.host, sizeof(mine.host), "%s", b->host);
    st = comm_gather(t->run->comm, &mine, sizeof(mine), 0, &all, sizes, err);
    if (st == ACCEL_OK && own == ACCEL_OK && all)
        own = compare_places(b, all, &bad);
    if (st == ACCEL_OK && all)
        describe_map(t, all, c->found, sizeof(c->found));
    free(all);
    free(sizes);
    if (st != ACCEL_OK || own == ACCEL_OK)
        return st;
    *err = bad;
    return own;
}
