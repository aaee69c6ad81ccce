/* SPDX-License-Identifier: Apache-2.0
 *
 * The bar that long commands draw: on a terminal's stderr only, and never beside JSON.
 */
#include <stdio.h>
#include <unistd.h>

#include "cli/data/ckpt_cmd.h"
#include "common/common.h"

/* Between two drawings. */
#define DRAW_EVERY_NS INT64_C(200000000)
#define BAR           24

static void draw(const struct ckpt_progress *p)
{
    static const char full[BAR + 1] = "########################";
    const double part = p->total > 0 ? (double)p->done / (double)p->total : 0;
    const int width = part < 1 ? (int)(part * BAR) : BAR;
    char done[32], total[32];

    if (p->counts) {
        snprintf(done, sizeof(done), "%lld", (long long)p->done);
        snprintf(total, sizeof(total), "%lld %s", (long long)p->total, p->counts);
    } else {
        format_bytes((double)p->done, done, sizeof(done));
        format_bytes((double)p->total, total, sizeof(total));
    }
    fprintf(stderr, "\r%s [%-*.*s] %3d %%, %s of %s\033[K", p->what, BAR, width, full,
            (int)(part * 100), done, total);
}

void ckpt_progress_to(struct ckpt_progress *p, const char *what, int64_t done,
                      int64_t total)
{
    int64_t now = clock_ns();

    p->what = what;
    p->done = done;
    p->total = total;
    if (p->off || (p->drawn && now - p->drawn < DRAW_EVERY_NS) ||
        !isatty(STDERR_FILENO))
        return;
    p->drawn = now;
    draw(p);
}

void ckpt_progress_add(struct ckpt_progress *p, int64_t bytes)
{
    ckpt_progress_to(p, p->what, p->done + bytes, p->total);
}

void ckpt_progress_read(void *user, const char *name, int64_t done, int64_t total)
{
    ckpt_progress_to(user, name, done, total);
}

void ckpt_progress_end(struct ckpt_progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = 0;
}
