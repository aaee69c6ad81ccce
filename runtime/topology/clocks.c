/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast a GPU may run, and what slows it down. In: NVML's answers for one GPU. Out:
 * clocks, power and reasons, as numbers and in words. Where the driver has no answer
 * the value is 0; nothing here fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/nvml.h"
#include "topology/topo.h"

/* ---- asking ---------------------------------------------------------------------- */

typedef int clock_f(nvml_device_t *device, int which, unsigned *out);
typedef int power_f(nvml_device_t *device, unsigned *out);

/* One of the clocks; 0: the library or the device does not say. */
static int mhz(clock_f *ask, nvml_device_t *device, int which)
{
    unsigned value = 0;

    return ask && ask(device, which, &value) == NVML_SUCCESS ? (int)value : 0;
}

/* NVML counts in milliwatts; rounded. */
static int watts(power_f *ask, nvml_device_t *device)
{
    unsigned milliwatts = 0;

    return ask && ask(device, &milliwatts) == NVML_SUCCESS
               ? (int)((milliwatts + 500) / 1000)
               : 0;
}

static unsigned reasons(const struct nvml *n, nvml_device_t *device)
{
    unsigned long long bits = 0;

    return n->reasons && n->reasons(device, &bits) == NVML_SUCCESS ? (unsigned)bits : 0;
}

void topo_clocks_read(const struct nvml *n, nvml_device_t *device,
                      struct topo_clocks *clocks_out)
{
    *clocks_out = (struct topo_clocks){
        .sm_mhz = mhz(n->clock, device, NVML_CLOCK_SM),
        .sm_max_mhz = mhz(n->max_clock, device, NVML_CLOCK_SM),
        .memory_mhz = mhz(n->clock, device, NVML_CLOCK_MEMORY),
        .memory_max_mhz = mhz(n->max_clock, device, NVML_CLOCK_MEMORY),
        .watts = watts(n->power, device),
        .limit_watts = watts(n->power_limit, device),
        .reasons = reasons(n, device),
    };
}

/* ---- asking again ---------------------------------------------------------------- */

/* NVML stays open as long as the watch does. */
struct topo_watch {
    struct nvml nvml;
    nvml_device_t *device;
};

/* By bus id and not by index: NVML and CUDA number the GPUs in different orders. */
static nvml_device_t *find_device(const struct nvml *n, const char *bus_id)
{
    nvml_device_t *device;
    unsigned count = 0;
    char at[16];

    if (n->device_count(&count) != NVML_SUCCESS)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        if (n->device(i, &device) == NVML_SUCCESS &&
            nvml_bus_id(n, device, at, sizeof(at)) && strcmp(at, bus_id) == 0)
            return device;
    return NULL;
}

struct topo_watch *topo_watch_open(const char *bus_id)
{
    struct topo_watch *w = calloc(1, sizeof(*w));
    char why[256];

    if (!w || nvml_open(&w->nvml, why, sizeof(why)) != NVML_READY) {
        free(w);
        return NULL;
    }
    w->device = find_device(&w->nvml, bus_id);
    if (w->device)
        return w;
    topo_watch_close(w);
    return NULL;
}

unsigned topo_watch_slow(const struct topo_watch *w)
{
    return reasons(&w->nvml, w->device) & REASONS_SLOW;
}

void topo_watch_read(const struct topo_watch *w, struct topo_clocks *clocks_out)
{
    topo_clocks_read(&w->nvml, w->device, clocks_out);
}

void topo_watch_close(struct topo_watch *w)
{
    if (!w)
        return;
    nvml_close(&w->nvml);
    free(w);
}

/* ---- in words -------------------------------------------------------------------- */

/* "345 of 1980 MHz", with what is known of the two. */
static void pair(struct strbuf *s, const char *what, int now, int most,
                 const char *unit)
{
    if (now <= 0 && most <= 0)
        return;
    strbuf_printf(s, "%s%s", s->len ? ", " : "", what);
    if (now > 0 && most > 0)
        strbuf_printf(s, "%d of %d %s", now, most, unit);
    else if (now > 0)
        strbuf_printf(s, "%d %s", now, unit);
    else
        strbuf_printf(s, "at most %d %s", most, unit);
}

/* Copies the string to buf, empty after a failed allocation, and frees it. */
static const char *clocks_finish_text(struct strbuf *s, char *buf, size_t len)
{
    snprintf(buf, len, "%s", s->s && !s->failed ? s->s : "");
    strbuf_free(s);
    return buf;
}

const char *topo_clocks_text(const struct topo_clocks *c, char *buf, size_t len)
{
    struct strbuf s = { 0 };

    pair(&s, "", c->sm_mhz, c->sm_max_mhz, "MHz");
    pair(&s, "memory ", c->memory_mhz, c->memory_max_mhz, "MHz");
    pair(&s, "", c->watts, c->limit_watts, "W");
    return clocks_finish_text(&s, buf, len);
}

const char *topo_reasons_text(unsigned bits, char *buf, size_t len)
{
    static const struct {
        unsigned bit;
        const char *text;
    } words[] = {
        { REASON_HARDWARE_HEAT, "too hot: slowed down by its hardware" },
        { REASON_DRIVER_HEAT, "too hot: slowed down by the driver" },
        { REASON_POWER_BRAKE, "slowed down by the node's power supply" },
        { REASON_HARDWARE, "slowed down by its hardware: heat or power supply" },
        { REASON_POWER_CAP, "at its power limit" },
        { REASON_SYNC, "held to the slowest GPU of its group" },
        { REASON_SET, "clocks set manually" },
        { REASON_IDLE, "idle" },
    };
    struct strbuf s = { 0 };

    /* Heat and power brake say it better than the general bit, which
     * comes with them. */
    if (bits & (REASON_HARDWARE_HEAT | REASON_POWER_BRAKE))
        bits &= ~(unsigned)REASON_HARDWARE;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(words); i++)
        if (bits & words[i].bit)
            strbuf_printf(&s, "%s%s", s.len ? "; " : "", words[i].text);
    return clocks_finish_text(&s, buf, len);
}
