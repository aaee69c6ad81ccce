/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps for place/: the GPU, the cores and the threads of this rank.
 */
#ifndef ACCEL_HANDLE_RUN_PLACE_H
#define ACCEL_HANDLE_RUN_PLACE_H

#include <stdbool.h>

#include "topology/topo.h"

/* This rank's place, and what place_undo needs to restore the state before. */
struct place {
    struct topo_place topo;
    /* CPU mask of the threads before they were bound; empty: they were not bound */
    char mask_before[TOPO_MASK];
    const char *unbound; /* why threads are not bound; NULL: they are */
    int threads;         /* of this rank's CPU backend */
    int threads_before;  /* OpenMP's setting when the run was opened; 0: not changed */
    int first_device;    /* this rank's, among the visible devices */
    bool chosen;         /* the run took a free GPU, as none was assigned */
    char choice[320];    /* which GPU was taken, or why none; empty: chosen is false */
    /* CUDA_VISIBLE_DEVICES before it was restricted; NULL: not restricted, or it was
     * unset */
    char *list_before;
    bool no_list_before; /* it was restricted, and unset before */
    /* watches this rank's GPU, owned; NULL: no GPU, or it cannot be watched */
    struct topo_watch *watch;
    unsigned slow; /* REASONS_SLOW of the GPU at the last look */
};

#endif
