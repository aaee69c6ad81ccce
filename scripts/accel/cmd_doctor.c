/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel doctor`: looks at what a run on this machine needs and says for each whether it
 * is there, with a cure where it is not. Changes nothing but a nameless file in the
 * directory of checkpoints.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "scripts/accel/cli.h"
#include "scripts/accel/doctor.h"
#include "backend/cuda_load.h"
#include "topology/nvml.h"

void doctor_say(struct doctor *d, const char *what, enum verdict v, const char *cure,
                const char *fmt, ...)
{
    static const char *const words[] = { "ok", "warn", "fail" };
    char found[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(found, sizeof(found), fmt, ap);
    va_end(ap);
    d->fails += v == FAIL;
    cli_table_row(d->table,
                  (const char *[]){ words[v], what, found, v == GOOD ? NULL : cure });
}

/* ---- files ------------------------------------------------------------------------------- */

static void check_module(struct doctor *d)
{
    const char *loaded = getenv("LOADEDMODULES"), *path = getenv("MODULEPATH");
    char *dirs = strdup(path ? path : ""), *rest = dirs;
    bool seen = false;

    for (char *dir = strsep(&rest, ":"); dir && !seen; dir = strsep(&rest, ":")) {
        char *folder = NULL;

        if (*dir && asprintf(&folder, "%s/accel", dir) >= 0) {
            seen = access(folder, R_OK) == 0;
            free(folder);
        }
    }
    free(dirs);
    if (loaded && strstr(loaded, "accel/"))
        doctor_say(d, "module", GOOD, NULL, "accel is loaded");
    else if (seen)
        doctor_say(d, "module", GOOD, NULL, "accel can be loaded");
    else
        doctor_say(d, "module", WARN,
                   "module use " DATADIR "/modulefiles, or keep accel in PATH",
                   "no module accel in MODULEPATH");
}

static void check_shm(struct doctor *d)
{
    struct statvfs v;
    char size[32];

    if (statvfs("/dev/shm", &v) || access("/dev/shm", W_OK)) {
        doctor_say(d, "/dev/shm", FAIL, "mount a tmpfs there that users may write to",
                   "%s", strerror(errno));
        return;
    }
    format_bytes((double)v.f_bavail * (double)v.f_frsize, size, sizeof(size));
    if ((double)v.f_bavail * (double)v.f_frsize < 256.0 * (1 << 20))
        doctor_say(d, "/dev/shm", WARN, "remove what is left there, or mount it larger",
                   "%s free; ranks of one node talk through it", size);
    else
        doctor_say(d, "/dev/shm", GOOD, NULL, "%s free", size);
}

/* Checkpoints are written past the page cache where the file system can. */
static void check_direct_io(struct doctor *d, const char *dir)
{
    static const char what[] = "checkpoints";
    struct statvfs v;
    char size[32] = "?";
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (statvfs(dir, &v) == 0)
        format_bytes((double)v.f_bavail * (double)v.f_frsize, size, sizeof(size));
    if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR) {
        doctor_say(d, what, WARN, "name the directory of checkpoints: --dir DIR",
                   "cannot write to %s: %s", dir, strerror(errno));
        return;
    }
    if (fd < 0) {
        doctor_say(d, what, WARN, "use a local or parallel file system",
                   "%s: no O_TMPFILE here, so O_DIRECT was not tried; %s free", dir,
                   size);
        return;
    }
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0)
        doctor_say(d, what, GOOD, NULL, "%s: writable, with O_DIRECT; %s free", dir,
                   size);
    else
        doctor_say(d, what, WARN, "checkpoints work; another file system is faster",
                   "%s: writable, without O_DIRECT; %s free", dir, size);
    close(fd);
}

/* GPUs of the node as NVML counts them into `out`; false: there is nothing to ask. */
static bool count_gpus(struct doctor *d, unsigned *count, char *driver, size_t len)
{
    char why[256] = "";
    struct nvml nvml;

    *count = 0;
    switch (nvml_open(&nvml, why, sizeof(why))) {
    case NVML_ABSENT:
        doctor_say(d, "gpu", GOOD, NULL, "none");
        return false;
    case NVML_BROKEN:
        doctor_say(d, "gpu", WARN, "run nvidia-smi; have the driver looked at",
                   "NVML: %s", why);
        return false;
    case NVML_READY:
        break;
    }
    if (nvml.device_count(count) != NVML_SUCCESS)
        *count = 0;
    if (nvml.driver_version)
        nvml.driver_version(driver, (unsigned)len);
    nvml_close(&nvml);
    return true;
}

/* GPUs and the module that computes on them; a node without GPUs needs none. */
static void check_gpu(struct doctor *d)
{
    char driver[80] = "?", module[512];
    accel_error_t err = { 0 };
    accel_status_t st = backend_cuda_module(module, sizeof(module), &err);
    unsigned count;

    if (count_gpus(d, &count, driver, sizeof(driver))) {
        if (count && st)
            doctor_say(d, "gpu", WARN,
                       "see the cuda line, or say use_cpu: true in the config",
                       "%u, driver %s; but no CUDA module", count, driver);
        else if (count)
            doctor_say(d, "gpu", GOOD, NULL, "%u, driver %s", count, driver);
        else
            doctor_say(d, "gpu", GOOD, NULL, "none, driver %s", driver);
    } else {
        count = 0;
    }
    if (st == ACCEL_OK)
        doctor_say(d, "cuda", GOOD, NULL, "%s", module);
    else if (err.message == 440 && !count)
        doctor_say(d, "cuda", GOOD, NULL, "no module; this node has no use for one");
    else
        doctor_say(d, "cuda", WARN, err.hint, "%s", err.text);
}

/* ---- the command -------------------------------------------------------------------------- */

struct args {
    const char *dir;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    if (key != 'd')
        return cli_parse_json_into(key, state, &a->json);
    a->dir = arg;
    return 0;
}

static const struct argp_option options[] = {
    { "dir", 'd', "DIR", 0, "Where checkpoints will be written (default: here)", 0 },
    CLI_JSON_OPTION,
    { 0 }
};
static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc =
        "Checks what a run here needs: Slurm and the plugin's versions, its line in "
        "plugstack.conf, who may change its files, PMIx, the module, /dev/shm, the "
        "directory of checkpoints and O_DIRECT in it, GPUs. Each line is ok, warn or "
        "fail, with a cure; accel env shows the versions of everything else.\vExit "
        "code: 0 when nothing failed, else 69."
};

static int run_doctor(int argc, char **argv)
{
    static const char *const columns[] = { "STATE", "WHAT", "FOUND", "CURE", NULL };
    struct doctor d = { 0 };
    accel_error_t err;
    struct args a = { .dir = "." };
    int code;

    cli_parse(&cli_doctor, argc, argv, &a);
    d.table = cli_table_new("checks", columns);
    if (!d.table) {
        accel_fail_nomem(&err, "the table", 0);
        return cli_fail(&err);
    }
    doctor_slurm(&d);
    check_module(&d);
    check_shm(&d);
    check_direct_io(&d, a.dir);
    check_gpu(&d);
    code = cli_table_print(d.table, a.json);
    if (!code && d.fails)
        code = accel_exit_code(ACCEL_EUNAVAIL);
    return code;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .run = run_doctor,
    .summary = "is all there that a run needs? with cures",
    .example = "accel doctor",
    .argp = &argp,
    .everyday = true,
};
