/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs of the node. In: NVML, or the PCI devices of a recorded machine. Out: struct
 * topo_gpus. A GPU that does not answer keeps its place in the list, so that the
 * indices of the others stay right. Never fails: not to know is one of the answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/machine.h"
#include "topology/nvml.h"

enum { PCI_NVIDIA = 0x10de, PCI_DISPLAY = 0x03 }; /* vendor; upper byte of the class */

/* ---- by NVML --------------------------------------------------------------------- */

/* The MIG slices of a GPU. Old drivers lack some of the questions; what
 * is known stays. */
static void read_slices(const struct nvml *n, nvml_device_t *device,
                        struct topo_gpu *gpu)
{
    unsigned now = 0, pending, places = 0;

    if (!n->mig_mode || n->mig_mode(device, &now, &pending) != NVML_SUCCESS || !now)
        return;
    gpu->mig = true;
    if (!n->mig_count || !n->mig_device ||
        n->mig_count(device, &places) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < places && gpu->slices < TOPO_SLICES; i++) {
        struct topo_slice *s = &gpu->slice[gpu->slices];
        struct nvml_memory memory;
        nvml_device_t *slice = NULL;
        unsigned id;

        /* `places` is the maximum: those without a slice answer "not found". */
        if (n->mig_device(device, i, &slice) != NVML_SUCCESS ||
            n->uuid(slice, s->uuid, sizeof(s->uuid)) != NVML_SUCCESS)
            continue;
        s->gpu_instance = s->compute_instance = -1;
        if (n->gpu_instance && n->gpu_instance(slice, &id) == NVML_SUCCESS)
            s->gpu_instance = (int)id;
        if (n->compute_instance && n->compute_instance(slice, &id) == NVML_SUCCESS)
            s->compute_instance = (int)id;
        if (n->memory && n->memory(slice, &memory) == NVML_SUCCESS)
            s->memory_bytes = (int64_t)memory.total;
        gpu->slices++;
    }
}

/* Notes the GPU at the other end of a link, once however many links lead there. */
static void add_peer(struct topo_gpu *gpu, const struct nvml_pci *pci)
{
    char bus_id[sizeof(gpu->bus_id)];

    nvml_print_bus_id(pci, bus_id, sizeof(bus_id));
    if (gpu->peers < TOPO_PEERS && !topo_gpu_linked(gpu, bus_id))
        memcpy(gpu->peer[gpu->peers++], bus_id, sizeof(bus_id));
}

/* Counts the active NVLinks and notes where they lead. Behind a switch every GPU
 * reaches every other one, so the ends are not listed. */
static void read_links(const struct nvml *n, nvml_device_t *device,
                       struct topo_gpu *gpu)
{
    for (unsigned link = 0; n->nvlink_state && link < NVML_NVLINKS; link++) {
        struct nvml_pci pci;
        unsigned active = 0, type = 0;

        if (n->nvlink_state(device, link, &active) != NVML_SUCCESS || !active)
            continue;
        gpu->nvlinks++;
        if (n->nvlink_remote_type &&
            n->nvlink_remote_type(device, link, &type) == NVML_SUCCESS &&
            type == NVML_NVLINK_SWITCH) {
            gpu->nvlinks_switch++;
            continue;
        }
        memset(&pci, 0, sizeof(pci));
        if (n->nvlink_remote && n->nvlink_remote(device, link, &pci) == NVML_SUCCESS)
            add_peer(gpu, &pci);
    }
}

bool topo_gpu_linked(const struct topo_gpu *gpu, const char *bus_id)
{
    for (int i = 0; i < gpu->peers; i++)
        if (strcmp(gpu->peer[i], bus_id) == 0)
            return true;
    return false;
}

/* bus_id is copied only when the UUID is known, too: an empty one marks a GPU that
 * does not answer. */
static void read_gpu(const struct nvml *n, nvml_device_t *device, struct topo_gpu *gpu)
{
    struct nvml_memory memory;
    char bus_id[sizeof(gpu->bus_id)];

    if (!nvml_bus_id(n, device, bus_id, sizeof(bus_id)) ||
        n->uuid(device, gpu->uuid, sizeof(gpu->uuid)) != NVML_SUCCESS)
        return;
    memcpy(gpu->bus_id, bus_id, sizeof(bus_id));
    if (n->name && n->name(device, gpu->name, sizeof(gpu->name)) != NVML_SUCCESS)
        gpu->name[0] = '\0';
    if (n->memory && n->memory(device, &memory) == NVML_SUCCESS) {
        gpu->memory_bytes = (int64_t)memory.total;
        gpu->memory_used_bytes = (int64_t)memory.used;
    }
    topo_clocks_read(n, device, &gpu->clocks);
    read_slices(n, device, gpu);
    read_links(n, device, gpu);
}

void topo_gpus_find(struct topo_gpus *gpus_out)
{
    nvml_device_t *device;
    struct nvml nvml;
    unsigned count = 0;
    int rc;

    memset(gpus_out, 0, sizeof(*gpus_out));
    switch (nvml_open(&nvml, gpus_out->why, sizeof(gpus_out->why))) {
    case NVML_BROKEN:
        gpus_out->broken = true;
        return;
    case NVML_ABSENT:
        return;
    case NVML_READY:
        break;
    }
    if (!nvml.driver_version ||
        nvml.driver_version(gpus_out->driver, sizeof(gpus_out->driver)) != NVML_SUCCESS)
        gpus_out->driver[0] = '\0';
    rc = nvml.device_count(&count);
    if (rc != NVML_SUCCESS) {
        gpus_out->broken = true;
        snprintf(gpus_out->why, sizeof(gpus_out->why), "NVML cannot count the GPUs: %s",
                 nvml_error(&nvml, rc));
        nvml_close(&nvml);
        return;
    }
    gpus_out->known = true;
    gpus_out->count = count < TOPO_GPUS ? (int)count : TOPO_GPUS;
    for (int i = 0; i < gpus_out->count; i++)
        if (nvml.device((unsigned)i, &device) == NVML_SUCCESS)
            read_gpu(&nvml, device, &gpus_out->gpu[i]);
    nvml_close(&nvml);
}

/* ---- of a record ----------------------------------------------------------------- */

/* hwloc stores UUID and model with the driver's OS device, if it saw one when the
 * machine was recorded. The UUID may lack NVML's prefix. */
static void read_notes(hwloc_obj_t pci, struct topo_gpu *gpu)
{
    const char *name = pci->name;

    for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling) {
        const char *uuid = hwloc_obj_get_info_by_name(os, "NVIDIAUUID");
        const char *model = hwloc_obj_get_info_by_name(os, "GPUModel");

        if (uuid)
            snprintf(gpu->uuid, sizeof(gpu->uuid), "%s%s",
                     strncmp(uuid, "GPU-", 4) == 0 ? "" : "GPU-", uuid);
        if (model)
            name = model;
    }
    snprintf(gpu->name, sizeof(gpu->name), "%s", name ? name : "");
}

/* for qsort: the order in which NVML numbers GPUs */
static int by_bus_id(const void *a, const void *b)
{
    return strcmp(((const struct topo_gpu *)a)->bus_id,
                  ((const struct topo_gpu *)b)->bus_id);
}

static bool is_gpu(hwloc_obj_t pci)
{
    return pci->attr->pcidev.vendor_id == PCI_NVIDIA &&
           pci->attr->pcidev.class_id >> 8 == PCI_DISPLAY;
}

int topo_machine_gpus_present(const struct topo_machine *m)
{
    hwloc_obj_t pci = NULL;
    int count = 0;

    while ((pci = hwloc_get_next_pcidev(m->tree, pci)))
        count += is_gpu(pci);
    return count;
}

void topo_gpus_of_record(struct topo_gpus *gpus_out, hwloc_topology_t tree)
{
    hwloc_obj_t pci = NULL;

    memset(gpus_out, 0, sizeof(*gpus_out));
    gpus_out->known = true;
    while ((pci = hwloc_get_next_pcidev(tree, pci)) && gpus_out->count < TOPO_GPUS) {
        const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;
        struct topo_gpu *gpu = &gpus_out->gpu[gpus_out->count];

        if (!is_gpu(pci))
            continue;
        snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%04x:%02x:%02x.0", p->domain,
                 p->bus, p->dev);
        read_notes(pci, gpu);
        gpus_out->count++;
    }
    qsort(gpus_out->gpu, (size_t)gpus_out->count, sizeof(gpus_out->gpu[0]), by_bus_id);
}

hwloc_obj_t topo_gpu_object(const struct topo_machine *m, const struct topo_rank *rank)
{
    if (rank->devices == 0 || !rank->device[0].bus_id[0])
        return NULL;
    return hwloc_get_pcidev_by_busidstring(m->tree, rank->device[0].bus_id);
}
