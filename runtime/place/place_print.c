/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of all ranks as rank 0 logs it at the start. In: every rank's place. Out: a
 * line per rank of the first node; of the other nodes only those that differ from it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/place.h"
#include "handle/run.h"

/* Differing nodes shown in full, and ranks shown per node: the log
 * must stay readable. */
enum { FULL_NODES = 3, FULL_RANKS = 64 };

/* A rank's line, gathered as bytes. */
struct line {

    int node;
    char host[64], text[640];
};

/* Has the node the same texts as node 0, rank by rank? line[size] is ordered by rank,
 * and ranks of a node need not be side by side. */
static bool like_first(const struct line *line, int size, int node)
{
    int a = 0, b = 0;

    for (;; a++, b++) {
        while (a < size && line[a].node != 0)
            a++;
        while (b < size && line[b].node != node)
            b++;
        if (a == size || b == size)
            return a == size && b == size;
        if (strcmp(line[a].text, line[b].text) != 0)
            return false;
    }
}

/* One line per rank of the node, at most FULL_RANKS. */
static void print_node(const accel_t *run, const struct line *line, int node)
{
    int shown = 0, left = 0;

    for (int r = 0; r < run->boot.size; r++) {
        if (line[r].node != node)
            continue;
        if (shown < FULL_RANKS)
            accel_logf(&run->log, ACCEL_LOG_INFO, "  rank %-4d %s: %s", r, line[r].host,
                       line[r].text);
        else
            left++;
        shown++;
    }
    if (left > 0)
        accel_logf(&run->log, ACCEL_LOG_INFO, "  %d more ranks on this node", left);
}

/* The first node in full, then only what differs from it. */
static void print_map(const accel_t *run, const struct line *line)
{
    int same = 0, other = 0;

    accel_logf(&run->log, ACCEL_LOG_INFO, "placement%s%s",
               run->place.unbound ? ", threads not bound: " : "",
               run->place.unbound ? run->place.unbound : "");
    print_node(run, line, 0);
    if (run->place.choice[0])
        accel_logf(&run->log, ACCEL_LOG_INFO, "  GPU       %s", run->place.choice);
    for (int node = 1; node < run->boot.nodes; node++) {
        if (like_first(line, run->boot.size, node))
            same++;
        else if (other++ < FULL_NODES)
            print_node(run, line, node);
    }
    if (same > 0)
        accel_logf(&run->log, ACCEL_LOG_INFO, "  %d more node%s like the first", same,
                   same == 1 ? "" : "s");
    if (other > FULL_NODES)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "  %d more nodes that differ from the first", other - FULL_NODES);
}

accel_status_t place_print(accel_t *run, accel_error_t *err)
{
    struct line mine = { .node = run->boot.node };
    size_t *sizes = calloc((size_t)run->boot.size, sizeof(*sizes));
    void *all = NULL;
    accel_status_t st;

    if (!sizes)
        return accel_fail_nomem(err, "the map", sizeof(mine));
    snprintf(mine.host, sizeof(mine.host), "%s", run->boot.host);
    topo_place_text(&run->place.topo, mine.text, sizeof(mine.text));
    st = comm_gather(run->comm, &mine, sizeof(mine), 0, &all, sizes, err);
    if (st == ACCEL_OK && all)
        print_map(run, all);
    free(all);
    free(sizes);
    return st;
}
