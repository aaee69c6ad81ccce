/* SPDX-License-Identifier: Apache-2.0
 *
 * A port of one's own for a rendezvous. There are two kinds of claims, both names of
 * abstract sockets, which the kernel releases when their holder ends: a launcher claims
 * (address, port) on its own host, and the first rank claims the port in its network.
 * Nobody gets a claim twice, so two runs never meet on one port.
 */
#ifndef ACCEL_COMMON_PORT_H
#define ACCEL_COMMON_PORT_H

#include "common/common.h"

/* Below Linux' ephemeral range (32768..60999) and away from 29500, torch's default. The
 * count is prime, so that a walk with any stride reaches every port. */
enum { PORT_FIRST = 15000, PORT_COUNT = 14387 };

/* Where the walk through the range starts, from 0: far apart for consecutive jobs, side
 * by side for the steps of one job. */
unsigned port_first_choice(uint32_t job, uint32_t step);
/* For the launcher: a port on `host` (name or address) that nobody has claimed
 * and, as far as can be seen from here, nobody uses. The claim lasts until
 * port_release(*claim_out), or until this process ends or execs. Where somebody has
 * claimed all that are tried, one that is not in use, and *claim_out is -1. A0321 if
 * there is none. */
accel_status_t port_claim(const char *host, uint32_t job, uint32_t step,
                          unsigned *port_out, int *claim_out, accel_error_t *err);
/* For the first rank, on the node where the port will be opened: holds the port's name
 * for this process and for the program that it execs. False: another run holds it. */
bool port_hold(unsigned port);
/* Gives up a claim; -1 is allowed. */
void port_release(int claim);

#endif
