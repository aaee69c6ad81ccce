/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of a program in another form than this accel writes, in a checkpoint that is
 * intact otherwise: each is refused by name of the directory, and the values that were
 * there stay. A valid form with the same code is loaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_state.h"
#include "common/env_names.h"
#include "handle/run.h"
#include "tests/tap.h"
#include "tests/world/run_folder.h"
#include "tests/world/run_net.h"

static char root[64] = "/tmp/accel-objects-XXXXXX";

#define TEN "nnnnnnnnnn"

static const struct row {
    const char *what, *blob;
    bool valid;
} rows[] = {
    { "as it is written", "objects 1\nmine 2 0 1 4\n\nnext", true },
    { "another object besides", "objects 1\nmine 2 0 1 4\nyours 0 0 1 1\n\nnextx",
      true },
    { "the same twice: the first counts",
      "objects 1\nmine 2 0 1 4\nmine 2 0 1 4\n\nnextlast", true },
    { "another title", "objects 2\nmine 2 0 1 4\n\nnext", false },
    { "no title", "mine 2 0 1 4\n\nnext", false },
    { "no end of the lines", "objects 1\nmine 2 0 1 0\n", false },
    { "fewer bytes than a line says", "objects 1\nmine 2 0 1 5\n\nnext", false },
    { "more bytes", "objects 1\nmine 2 0 1 3\n\nnext", false },
    { "no rank", "objects 1\nmine 2 0 0\n\n", false },
    { "more ranks than there can be", "objects 1\nmine 2 0 1048577 4\n\nnext", false },
    { "fewer sizes than ranks", "objects 1\nmine 2 1 2 4\n\nnext", false },
    { "more sizes than ranks", "objects 1\nmine 2 0 1 4 0\n\nnext", false },
    { "another kind", "objects 1\nmine 2 3 1 4\n\nnext", false },
    { "a version in words", "objects 1\nmine two 0 1 4\n\nnext", false },
    { "a version below 0", "objects 1\nmine -2 0 1 4\n\nnext", false },
    { "a version beyond int", "objects 1\nmine 2147483648 0 1 4\n\nnext", false },
    { "no name", "objects 1\n 2 0 1 4\n\nnext", false },
    { "a name alone", "objects 1\nmine\n\nnext", false },
    { "a name of 64 bytes",
      "objects 1\n" TEN TEN TEN TEN TEN TEN "nnnn 2 0 1 4\n\nnext", false },
};

static const struct row *forged;

accel_status_t __real_registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                                      accel_error_t *err);
accel_status_t __wrap_registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                                      accel_error_t *err);
accel_status_t __wrap_registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                                      accel_error_t *err)
{
    accel_status_t st = __real_registered_save(run, data_out, bytes_out, err);

    if (st)
        return st;
    free(*data_out);
    *data_out = strdup(forged->blob);
    *bytes_out = strlen(forged->blob);
    return *data_out ? ACCEL_OK : ACCEL_ENOMEM;
}

static accel_status_t put(void *user, accel_bytes_t *to, accel_error_t *err)
{
    return accel_bytes_put(to, user, 4, err);
}

static accel_status_t take(void *user, const accel_saved_t *from, accel_error_t *err)
{
    size_t bytes = 0;
    const void *data = accel_saved_bytes(from, 0, &bytes);

    (void)err;
    memcpy(user, data, bytes < 4 ? bytes : 4);
    return ACCEL_OK;
}

/* Saves the row's objects, and loads them into a run that has others. */
static void check_row(accel_t *run, char mine[4], const char *dir)
{
    accel_error_t err = { 0 };
    accel_status_t st = accel_save_state(run, dir, &err);

    memcpy(mine, "here", 4);
    tap_is_int(st, ACCEL_OK, "%s: saved %s", forged->what, err.text);
    st = accel_load_state(run, dir, &err);
    if (forged->valid)
        tap_ok(!st && !memcmp(mine, "next", 4), "  and loaded %s", err.text);
    else
        tap_ok(st == ACCEL_EMISMATCH && strstr(err.where, dir) && err.hint[0] &&
                   strstr(err.text, "in a format that this accel does not read") &&
                   !memcmp(mine, "here", 4) && !run->status,
               "  and refused: %s: %s (%s)", err.where, err.text, err.hint);
}

int main(void)
{
    struct net_run net = { 0 };
    char path[96], dir[128], mine[4] = "here";
    accel_error_t err = { 0 };
    accel_status_t st;

    unsetenv(ENV_CONFIG);
    run_folder_new(root);
    snprintf(path, sizeof(path), "%s/run", root);
    run_net_config(path, "NO_SHARD", 1, 1, NULL);
    st = run_net_open(&net, path, 0.1f, &err);
    ACCEL_TRY(st, accel_register(net.run, "mine", 2, ACCEL_STATE_COMMON, put, take,
                                 mine, &err));
    ACCEL_TRY(st, run_net_prepare(&net, path, &err));
    tap_is_int(st, ACCEL_OK, "a run begins %s", err.text);
    for (size_t i = 0; !st && i < ACCEL_ARRAY_SIZE(rows); i++) {
        forged = &rows[i];
        snprintf(dir, sizeof(dir), "%s/state_%zu", root, i);
        check_row(net.run, mine, dir);
    }
    accel_close(net.run, NULL);
    run_folder_remove(root);
    return tap_done();
}
