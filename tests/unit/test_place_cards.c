/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks tell each other of their place, as another version of accel might: all
 * ranks refuse to begin, and name the rank whose words they cannot read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

enum { RANKS = 2 };

static char root[64] = "/tmp/accel-cards-XXXXXX", path[80];

static const struct row {
    const char *what, *card;
    size_t bytes;
    bool read;
} rows[] = {
#define ROW(what, card) what, card, sizeof(card)
    { ROW("as it is written", "0 0 0x1"), true },
    { ROW("more words", "0 0 0x1 and more"), true },
    { "no byte", "", 0, false },
    { "no end", "0 0 0x1", 7, false },
    { ROW("no word", ""), false },
    { ROW("a status alone", "0"), false },
    { ROW("no mask", "0 0"), false },
    { ROW("fewer devices than none", "0 -1 0x1"), false },
    { ROW("more devices than a rank may have", "0 1000 0x1"), false },
    { ROW("a device without a bus", "0 1 0x1"), false },
    { ROW("a device without an id", "0 1 0x1 0000:01:00.0"), false },
};

/* Of all ranks: it is read, but a rank without a CPU has no place. */
static const struct row nowhere = { ROW("a mask of no CPU", "0 0 0x0"), true };

static const struct row *now;

/* The last rank's card is that of the row. */
accel_status_t __real_boot_exchange(struct boot *b, const void *mine, size_t bytes,
                                    struct boot_blobs *all_out, accel_error_t *err);
accel_status_t __wrap_boot_exchange(struct boot *b, const void *mine, size_t bytes,
                                    struct boot_blobs *all_out, accel_error_t *err);
accel_status_t __wrap_boot_exchange(struct boot *b, const void *mine, size_t bytes,
                                    struct boot_blobs *all_out, accel_error_t *err)
{
    static bool first = true;

    if (first && (b->rank == RANKS - 1 || now == &nowhere)) {
        mine = now->card;
        bytes = now->bytes;
    }
    first = false;
    return __real_boot_exchange(b, mine, bytes, all_out, err);
}

static int rank(struct boot *b, void *arg)
{
    struct net_run net = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st;

    (void)arg;
    open_world_join(b);
    st = run_net_begin(&net, path, &err);
    accel_close(net.run, NULL);
    if (now == &nowhere)
        return st == ACCEL_OK ||
               !run_net_says(&err, A0431, "is restricted to CPUs 0x0");
    if (now->read)
        return st != ACCEL_OK;
    if (run_net_says(&err, A0433, "rank 1 sent its place in a format"))
        return 0;
    return 1;
}

int main(void)
{
    unsetenv(ENV_CONFIG);
    run_folder_new(root);
    snprintf(path, sizeof(path), "%s/run", root);
    run_net_config(path, "NO_SHARD", RANKS, 1, NULL);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        now = &rows[i];
        tap_is_int(open_world(RANKS, 1, rank, NULL, HANG_S), 0, "%s: %s", now->what,
                   now->read ? "read" : "refused by both ranks");
    }
    now = &nowhere;
    tap_is_int(open_world(RANKS, 1, rank, NULL, HANG_S), 0, "%s: refused by both ranks",
               now->what);
    run_folder_remove(root);
    return tap_done();
}
