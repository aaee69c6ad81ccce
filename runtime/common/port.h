/* SPDX-License-Identifier: Apache-2.0
 *
 * A port of one's own for a rendezvous. Two kinds of claims, both names of abstract sockets,
 * which the kernel takes back when their holder ends: a launcher claims (address, port) on
 * its own host, the first rank claims the port in its network. Nobody gets a claim twice,
 * so two runs never meet on one port.
 */
#ifndef ACCEL_COMMON_PORT_H
#define ACCEL_COMMON_PORT_H

#include "common/common.h"

/* Below Linux' ephemeral range (32768..60999), away from 29500. The number is a prime, so
 * that the walk through the range comes everywhere. */
enum { PORT_FIRST = 15000, PORT_COUNT = 14387 };

/* Where the walk starts: far apart for jobs that follow each other, side by side for the
 * steps of one job. */
unsigned port_first_choice(uint32_t job, uint32_t step);
/* The launcher: a port on `host` (name or address) that is claimed by nobody and, as far as
 * it can be seen from here, in use by nobody. The claim lasts until port_release(*claim_out),
 * or this process ends or becomes another program. A0321 when there is none. */
accel_status_t port_claim(const char *host, uint32_t job, uint32_t step,
                          unsigned *port_out, int *claim_out, accel_error_t *err);
/* The first rank, on the node where the port will be opened: holds the port's name for the
 * process and for the program that it becomes. False: another run holds it. */
bool port_hold(unsigned port);
void port_release(int claim);

#endif
