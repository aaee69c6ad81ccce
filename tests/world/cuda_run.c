/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder, the configs and the driver of runs in a test (cuda_run.h).
 */
#include "tests/world/cuda_run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/world/cuda_device.h"

char cuda_run_dir[64] = "/tmp/accel-cuda.XXXXXX";

/* Starts the program again, with the folder where the stand-in's driver has its name. On
 * a GPU there is a driver. */
static void start_with_driver(char **argv)
{
    const char *build = getenv("ACCEL_BUILD"), *source = getenv("ACCEL_SRC");
    char nvml[PATH_MAX], name[96], table[PATH_MAX], path[PATH_MAX];

    snprintf(nvml, sizeof(nvml), "%s/tests/helpers/.libs/fake_nvml.so",
             build ? build : ".");
    snprintf(table, sizeof(table), "%s/tests/data/topo/pcie4.nvml",
             source ? source : ".");
    snprintf(name, sizeof(name), "%s/libnvidia-ml.so.1", cuda_run_dir);
    if (!realpath(nvml, path) || symlink(path, name))
        tap_skip_all("the stand-in for the driver is not built");
    setenv("LD_LIBRARY_PATH", cuda_run_dir, 1);
    setenv("FAKE_NVML", table, 1);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    execv("/proc/self/exe", argv);
    exit(1);
}

void cuda_run_begin(char **argv)
{
    static const char yaml[] = "distributed_type: 'NO'\nmixed_precision: bf16\n"
                               "accel: {checkpoint: {save: false}}\n"
                               "use_cpu: true\n";
    const size_t gpu = (size_t)(strstr(yaml, "use_cpu") - yaml);
    const char *again = getenv("LD_LIBRARY_PATH");
    void *stand_in;

#ifdef __SANITIZE_ADDRESS__
    tap_skip_all("the stand-in's kernels have stacks of their own");
#endif
    backend_close(cuda_device());
    if (again && getenv("FAKE_NVML"))
        snprintf(cuda_run_dir, sizeof(cuda_run_dir), "%s", again);
    else if (!mkdtemp(cuda_run_dir))
        tap_skip_all("no directory for temporary files");
    unsetenv("ACCEL_CONFIG_RESOLVED");
    unsetenv("HWLOC_XMLFILE");
    if (cuda_stand_in("fakecuda_reset", &stand_in) && !getenv("FAKE_NVML"))
        start_with_driver(argv);
    cuda_run_write(CUDA_RUN_CPU, yaml, strlen(yaml));
    cuda_run_write(CUDA_RUN_GPU, yaml, gpu);
}

void cuda_run_write(const char *name, const void *text, size_t bytes)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", cuda_run_dir, name);
    f = fopen(path, "w");
    if (f && fwrite(text, 1, bytes, f) == bytes && !fclose(f))
        return;
    tap_ok(false, "%s is written", path);
    exit(tap_done());
}

accel_status_t cuda_run_open(accel_t **run_out, const char *config, accel_log_f log,
                             accel_error_t *err)
{
    char path[128];
    const accel_options_t o = { sizeof(o), .config_file = path, .log = log,
                                .threads = 1 };

    snprintf(path, sizeof(path), "%s/%s", cuda_run_dir, config);
    return accel_open(run_out, &o, err);
}

void cuda_run_end(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", cuda_run_dir);
    tap_ok(system(command) == 0, "removed");
}
