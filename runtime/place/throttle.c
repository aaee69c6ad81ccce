/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports when this rank's GPU is slower than it should be. In: NVML's reasons. Out: a
 * warning at the start and one for each change. All ranks wait for the slowest one: a
 * single hot GPU slows down the whole run, and without this line nobody knows which.
 */
#include "place/place.h"
#include "handle/run.h"

/* The warning for the reasons `slow`; 0: it has recovered. */
static void tell(const accel_t *run, unsigned slow)
{
    struct topo_clocks clocks;
    char why[256], now[128];

    topo_watch_read(run->place.watch, &clocks);
    topo_clocks_text(&clocks, now, sizeof(now));
    accel_logf(&run->log, ACCEL_LOG_WARN, "%s: GPU %s %s%s%s%s", run->boot.host,
               run->place.topo.device[0].bus_id,
               slow ? topo_reasons_text(slow, why, sizeof(why))
                    : "is no longer slowed down",
               now[0] ? " (" : "", now, now[0] ? ")" : "");
}

void throttle_open(accel_t *run)
{
    if (run->place.topo.devices == 0 || !run->place.topo.device[0].bus_id[0])
        return;
    run->place.watch = topo_watch_open(run->place.topo.device[0].bus_id);
    throttle_check(run);
}

void throttle_check(accel_t *run)
{
    unsigned slow = run->place.watch ? topo_watch_slow(run->place.watch) : 0;

    if (slow != run->place.slow)
        tell(run, slow);
    run->place.slow = slow;
}

void throttle_close(accel_t *run)
{
    topo_watch_close(run->place.watch);
    run->place.watch = NULL;
}
