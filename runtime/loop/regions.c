/* SPDX-License-Identifier: Apache-2.0
 *
 * Named parts of the program's time. In: begins and ends that nest. Out: ranges for
 * profilers, and at the end of a step the wall time of each region, to log and
 * trackers. Times count from one report to the next. A region that is open during a
 * report counts in the report after its end.
 */
#include <stdio.h>
#include <string.h>

#include "loop/loop.h"
#include "backend/device.h"
#include "handle/run.h"

static const char *region_name(const struct regions *r, int depth)
{
    const char *path = r->known[r->open[depth].known].path;
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The entry of that path, a new one if need be; -1: there is no room. */
static int region_of(struct regions *r, const char *path)
{
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->known[i].path, path))
            return i;
    if (r->count == RUN_REGIONS)
        return -1;
    snprintf(r->known[r->count].path, sizeof(r->known[0].path), "%s", path);
    return r->count++;
}

/* "outer/inner"; a slash in a name would look like a region of its own. False: too
 * long. */
static bool region_path(const struct regions *r, const char *name, char *path,
                        size_t len)
{
    const char *outer = r->depth ? r->known[r->open[r->depth - 1].known].path : "";
    size_t n = (size_t)snprintf(path, len, "%s%s", outer, r->depth ? "/" : "");

    if (n + strlen(name) >= len)
        return false;
    strcpy(path + n, name);
    for (char *at = path + n; *at; at++)
        if (*at == '/')
            *at = '_';
    return true;
}

static accel_status_t bad_region(accel_error_t *err, const char *name, const char *what)
{
    return accel_fail(err, A0952, "see accel_region_begin in accel_track.h",
                      "accel_region_begin of '%.63s': %s", name, what);
}

accel_status_t accel_region_begin(accel_t *run, const char *name, accel_error_t *err)
{
    accel_status_t st;
    char path[RUN_REGION_PATH];
    struct regions *r;
    int known;

    ACCEL_CHECK(st, run_given(run, "accel_region_begin", err));
    r = &run->regions;
    if (!name || !name[0])
        return bad_region(err, "", "it has no name");
    if (strlen(name) > RUN_REGION_NAME)
        return bad_region(err, name, "the name is too long");
    if (r->depth == RUN_REGION_DEPTH || !region_path(r, name, path, sizeof(path)))
        return bad_region(err, name, "regions are nested too deeply");
    known = region_of(r, path);
    if (known < 0)
        return bad_region(err, name, "there are too many different regions");
    run->backend->region_begin(run->backend, name);
    r->open[r->depth].known = known;
    r->open[r->depth++].since_ns = clock_ns();
    return ACCEL_OK;
}

accel_status_t accel_region_end(accel_t *run, const char *name, accel_error_t *err)
{
    accel_status_t st;
    char path[RUN_REGION_PATH];
    struct regions *r;

    ACCEL_CHECK(st, run_given(run, "accel_region_end", err));
    r = &run->regions;
    if (r->depth == 0)
        return accel_fail(err, A0952, "call accel_region_begin first",
                          "accel_region_end of '%.63s': no region is open",
                          name ? name : "");
    r->depth--;
    if (!region_path(r, name ? name : "", path, sizeof(path)) ||
        strcmp(path, r->known[r->open[r->depth].known].path) != 0) {
        r->depth++;
        return accel_fail(err, A0952, "end the region that began last",
                          "accel_region_end of '%.63s', but the region that began last "
                          "is '%s'",
                          name ? name : "", region_name(r, r->depth - 1));
    }
    run->backend->region_end(run->backend);
    r->known[r->open[r->depth].known].ns += clock_ns() - r->open[r->depth].since_ns;
    r->known[r->open[r->depth].known].times++;
    return ACCEL_OK;
}

/* One item per region that has ended since the last report. */
static void track_region(accel_t *run, const struct region *g)
{
    char name[sizeof(g->path) + 16];
    const accel_item_t item = { .name = name, .value = (double)g->ns / 1e6 };
    struct track_items clean = { 0 };

    snprintf(name, sizeof(name), "region/%s_ms", g->path);
    if (track_clean_items(&item, 1, &clean, NULL) == ACCEL_OK)
        track_write(&run->track, run->progress.step, clean.item, 1);
    track_items_free(&clean);
}

void regions_report(accel_t *run)
{
    for (int i = 0; i < run->regions.count; i++) {
        struct region *g = &run->regions.known[i];

        if (g->times == 0)
            continue;
        accel_logf(&run->log, ACCEL_LOG_DEBUG, "step %lld region %s: %.3f ms, %lld %s",
                   (long long)run->progress.step, g->path, (double)g->ns / 1e6,
                   (long long)g->times, g->times == 1 ? "time" : "times");
        if (run->track.sinks > 0)
            track_region(run, g);
        g->ns = g->times = 0;
    }
}
