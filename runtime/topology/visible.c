/* SPDX-License-Identifier: Apache-2.0
 *
 * From a word of CUDA_VISIBLE_DEVICES to a device of the node. In: the list as
 * text, and the GPUs. Out: bus id and UUID. Never reads the environment and never
 * asks the driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/topo.h"

/* Word number `at` (from 0) of the list, without blanks; empty beyond the last one. */
static void word_at(const char *list, int at, char *out, size_t len)
{
    size_t n;

    while (at-- > 0 && *list)
        list = strchrnul(list, ',') + (*strchrnul(list, ',') == ',');
    list += strspn(list, " ");
    n = strcspn(list, ", ");
    snprintf(out, len, "%.*s", (int)n, list);
}

static accel_status_t no_such(const struct topo_gpus *gpus, const char *word,
                              accel_error_t *err)
{
    return accel_fail(
        err, A0422,
        "leave CUDA_VISIBLE_DEVICES as Slurm sets it; accel topo lists the GPUs",
        "CUDA_VISIBLE_DEVICES names '%s', which matches none of the %d "
        "usable GPU%s of this node",
        word, gpus->count, gpus->count == 1 ? "" : "s");
}

bool topo_is_slice(const struct topo_device *d)
{
    return strncmp(d->id, "MIG-", 4) == 0;
}

/* Fills *device_out from a GPU, or from its slice number `slice` (-1:
 * the whole GPU). */
static void take_slice(const struct topo_gpus *gpus, int index, int slice,
                       struct topo_device *device_out)
{
    const struct topo_gpu *gpu = &gpus->gpu[index];

    device_out->index = index;
    snprintf(device_out->bus_id, sizeof(device_out->bus_id), "%s", gpu->bus_id);
    snprintf(device_out->id, sizeof(device_out->id), "%s",
             slice < 0 ? gpu->uuid : gpu->slice[slice].uuid);
    device_out->memory_bytes =
        slice < 0 ? gpu->memory_bytes : gpu->slice[slice].memory_bytes;
    device_out->sm_max_mhz = gpu->clocks.sm_max_mhz;
    device_out->limit_watts = slice < 0 ? gpu->clocks.limit_watts : 0;
}

/* The GPU at `index`, or its first slice if it is in MIG mode. `word`: as the
 * list names it. */
static accel_status_t take_gpu(const struct topo_gpus *gpus, int index,
                               const char *word, struct topo_device *device_out,
                               accel_error_t *err)
{
    const struct topo_gpu *gpu = &gpus->gpu[index];

    if (!gpu->bus_id[0])
        return accel_fail(err, A0427,
                          "check nvidia-smi and dmesg (Xid) on the node, and report "
                          "the node to its administrator",
                          "GPU %s of this node does not answer its driver", word);
    if (gpu->mig && gpu->slices == 0)
        return accel_fail(
            err, A0427, "create slices with nvidia-smi mig -cgi, or turn MIG off",
            "GPU %s (%s) is in MIG mode but has no slice", word, gpu->bus_id);
    take_slice(gpus, index, gpu->mig ? 0 : -1, device_out);
    return ACCEL_OK;
}

/* Does the word name this slice as drivers before 470 did: "MIG-GPU-UUID/gi/ci"? */
static bool is_old_name(const struct topo_gpu *gpu, const struct topo_slice *slice,
                        const char *word)
{
    char name[TOPO_ID + 32];

    snprintf(name, sizeof(name), "MIG-%s/%d/%d", gpu->uuid, slice->gpu_instance,
             slice->compute_instance);
    return strcmp(name, word) == 0;
}

/* Index of the only GPU whose UUID begins with the word, or of the GPU whose slice
 * *slice_out does; -1: none, -2: several. CUDA accepts such abbreviations, too. */
static int find_uuid(const struct topo_gpus *gpus, const char *word, int *slice_out)
{
    bool slices = strncmp(word, "MIG-", 4) == 0;
    size_t n = strlen(word);
    int found = -1;

    for (int i = 0; i < gpus->count; i++) {
        const struct topo_gpu *gpu = &gpus->gpu[i];

        for (int s = slices ? 0 : -1; s < (slices ? gpu->slices : 0); s++) {
            bool same = slices ? strncmp(gpu->slice[s].uuid, word, n) == 0 ||
                                     is_old_name(gpu, &gpu->slice[s], word)
                               : strncmp(gpu->uuid, word, n) == 0;

            if (same && found >= 0)
                return -2;
            if (same) {
                found = i;
                *slice_out = s;
            }
        }
    }
    return found;
}

/* Without knowledge of the GPUs the word itself is the id, and the
 * rest stays unknown. */
accel_status_t topo_visible_device(const struct topo_gpus *gpus, const char *visible,
                                   int at, struct topo_device *device_out,
                                   accel_error_t *err)
{
    char word[TOPO_ID], *end;
    int slice = -1, index;
    long number;

    if (visible)
        word_at(visible, at, word, sizeof(word));
    else
        snprintf(word, sizeof(word), "%d", at);
    memset(device_out, 0, sizeof(*device_out));
    device_out->index = -1;
    if (!gpus->known) {
        snprintf(device_out->id, sizeof(device_out->id), "%s", word);
        return ACCEL_OK;
    }
    number = strtol(word, &end, 10);
    if (*word && *end == '\0') {
        if (number < 0 || number >= gpus->count)
            return no_such(gpus, word, err);
        return take_gpu(gpus, (int)number, word, device_out, err);
    }
    index = find_uuid(gpus, word, &slice);
    if (index == -2)
        return accel_fail(err, A0422, "give more of the UUID (see nvidia-smi -L)",
                          "CUDA_VISIBLE_DEVICES names '%s', which matches several "
                          "devices of this node",
                          word);
    if (index < 0)
        return no_such(gpus, word, err);
    if (slice < 0)
        return take_gpu(gpus, index, word, device_out, err);
    take_slice(gpus, index, slice, device_out);
    return ACCEL_OK;
}

/* Slurm leaves the variable unset with --gpu-bind=none and several tasks (22.05).
 * If a cgroup hides the other GPUs, exactly the step's are visible and nothing
 * can go wrong. */
accel_status_t topo_check_unset(const struct topo_gpus *gpus, const char *visible,
                                int on_node, accel_error_t *err)
{
    if (visible || on_node == 0 || (gpus->known && gpus->count == on_node))
        return ACCEL_OK;
    return accel_fail_at(
        err, A0412, "CUDA_VISIBLE_DEVICES",
        "remove --gpu-bind=none, or check gres.conf on the node",
        "not set: accel cannot tell which %d of the node's GPUs belong to the step",
        on_node);
}
