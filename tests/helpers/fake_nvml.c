/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnvidia-ml.so.1: the same functions, answering from a text file that
 * $FAKE_NVML names. Each line is one of
 *     driver VERSION
 *     init RC  |  count RC                    these calls fail with RC
 *     gpu BUS-ID UUID BYTES USED NAME...      the next GPU
 *     dev FILE                                its device file: hidden unless it may be
 *     opened
 *     lost                                    it does not answer
 *     mig UUID GI CI [BYTES]                  a slice of it; `mig -` turns MIG on
 *     without one
 *     link N BUS-ID | link N switch           its NVLink number N
 *     clocks SM SM-MAX MEMORY MEMORY-MAX      in MHz
 *     power MILLIWATTS LIMIT
 *     reasons BITS...                         why its clocks are down, question by
 *     question
 *                                             (hexadecimal; the last one stays) What a
 *                                             file does not say is "not supported".
 *                                             Built with FAKE_NVML_OLD it has only what
 *                                             a driver of 2014 had, under the old
 *                                             names: no clocks and power, but the
 *                                             reasons.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS = 16, SLICES = 7, LINKS = 18, REASONS = 8 };
enum { UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15, UNKNOWN = 999 };

struct device {
    char bus_id[32], uuid[96], name[96];
    unsigned long long bytes, used;
    int lost, mig, slices, gi, ci, is_slice, reasons, asked;
    unsigned long long reason[REASONS];
    unsigned clock[2], max_clock[2], power, power_limit; /* clocks: SM, memory */
    struct device *slice[SLICES];
    char link[LINKS][32];
};
struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct memory_info {
    unsigned long long total, free, used;
};

static struct device gpu[GPUS];
static int gpus, init_rc, count_rc, open_count;
static char driver[64];

static struct device *add_slice(struct device *d, const char *line)
{
    struct device *s = calloc(1, sizeof(*s));

    if (s &&
        sscanf(line, "mig %95s %d %d %llu", s->uuid, &s->gi, &s->ci, &s->bytes) >= 3) {
        memcpy(s->bus_id, d->bus_id, sizeof(s->bus_id));
        s->is_slice = 1;
        return s;
    }
    free(s);
    return NULL;
}

/* As the driver: a GPU whose file the device cgroup denies is not there. */
static int is_denied(const char *file)
{
    int fd = open(file, O_RDWR | O_CLOEXEC);

    if (fd >= 0)
        close(fd);
    return fd < 0 && errno == EPERM;
}

static void read_reasons(struct device *d, const char *list)
{
    char *end;

    for (d->reasons = 0; d->reasons < REASONS; d->reasons++, list = end) {
        d->reason[d->reasons] = strtoull(list, &end, 16);
        if (end == list)
            break;
    }
}

static void read_speed(struct device *d, const char *line)
{
    sscanf(line, "clocks %u %u %u %u", &d->clock[0], &d->max_clock[0], &d->clock[1],
           &d->max_clock[1]);
    sscanf(line, "power %u %u", &d->power, &d->power_limit);
    if (strncmp(line, "reasons ", 8) == 0)
        read_reasons(d, line + 8);
}

static void read_line(const char *line)
{
    struct device *d = gpus > 0 ? &gpu[gpus - 1] : NULL;
    char word[256], at[32];
    int n;

    sscanf(line, "driver %63s", driver);
    sscanf(line, "init %d", &init_rc);
    sscanf(line, "count %d", &count_rc);
    if (strncmp(line, "gpu ", 4) == 0 && gpus < GPUS) {
        d = &gpu[gpus++];
        memset(d, 0, sizeof(*d));
        sscanf(line, "gpu %31s %95s %llu %llu %95[^\n]", d->bus_id, d->uuid, &d->bytes,
               &d->used, d->name);
    } else if (d && sscanf(line, "dev %255s", word) == 1 && is_denied(word)) {
        gpus--;
    } else if (d && strncmp(line, "lost", 4) == 0) {
        d->lost = 1;
    } else if (d && strncmp(line, "mig ", 4) == 0) {
        d->mig = 1;
        if (d->slices < SLICES && (d->slice[d->slices] = add_slice(d, line)))
            d->slices++;
    } else if (d && sscanf(line, "link %d %31s", &n, at) == 2 && n >= 0 && n < LINKS) {
        memcpy(d->link[n], at, sizeof(at));
    } else if (d) {
        read_speed(d, line);
    }
}

static int read_file(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[512];

    gpus = init_rc = count_rc = 0;
    if (!f)
        return 9; /* driver not loaded */
    while (fgets(line, sizeof(line), f))
        read_line(line);
    fclose(f);
    open_count += init_rc == 0;
    return init_rc;
}

static int fill_pci(const char *bus_id, struct pci_info *out)
{
    memset(out, 0, sizeof(*out));
    sscanf(bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->legacy, sizeof(out->legacy), "%.12s", bus_id);
    return 0;
}

/* The next answer of the list; the last one stays. */
static int next_reason(struct device *d, unsigned long long *out)
{
    int at = d->asked < d->reasons ? d->asked++ : d->reasons - 1;

    if (at < 0)
        return NOT_SUPPORTED;
    *out = d->reason[at];
    return 0;
}

#pragma GCC visibility push(default)

/* ---- what both have -------------------------------------------------------------- */

int nvmlShutdown(void)
{
    if (open_count == 0)
        return UNINITIALIZED;
    open_count--;
    for (int i = 0; i < gpus; i++)
        while (gpu[i].slices > 0)
            free(gpu[i].slice[--gpu[i].slices]);
    return 0;
}

int nvmlDeviceGetUUID(struct device *d, char *buf, unsigned len)
{
    snprintf(buf, len, "%s", d->uuid);
    return d->lost ? LOST : 0;
}

static int count(unsigned *out)
{
    *out = (unsigned)gpus;
    return open_count == 0 ? UNINITIALIZED : count_rc;
}

static int by_index(unsigned index, struct device **out)
{
    if (index >= (unsigned)gpus)
        return 2; /* invalid argument */
    *out = &gpu[index];
    return gpu[index].lost ? LOST : 0;
}

#ifdef FAKE_NVML_OLD

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *out)
{
    return next_reason(d, out);
}

int nvmlInit(void)
{
    return read_file();
}

int nvmlDeviceGetCount(unsigned *out)
{
    return count(out);
}

int nvmlDeviceGetHandleByIndex(unsigned index, struct device **out)
{
    return by_index(index, out);
}

int nvmlDeviceGetPciInfo_v2(struct device *d, struct pci_info *out)
{
    return d->lost ? LOST : fill_pci(d->bus_id, out);
}

#else

int nvmlInit_v2(void)
{
    return read_file();
}

const char *nvmlErrorString(int rc)
{
    return rc == 9    ? "Driver Not Loaded"
           : rc == 18 ? "Driver/library version mismatch"
                      : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *buf, unsigned len)
{
    snprintf(buf, len, "%s", driver);
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    return count(out);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out)
{
    return by_index(index, out);
}

int nvmlDeviceGetPciInfo_v3(struct device *d, struct pci_info *out)
{
    snprintf(out->bus_id, sizeof(out->bus_id), "%s", d->bus_id);
    return d->lost ? LOST : fill_pci(d->bus_id, out);
}

int nvmlDeviceGetName(struct device *d, char *buf, unsigned len)
{
    snprintf(buf, len, "%s", d->name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(struct device *d, struct memory_info *out)
{
    out->total = d->bytes;
    out->used = d->used;
    out->free = d->bytes - d->used;
    return 0;
}

int nvmlDeviceGetMigMode(struct device *d, unsigned *now, unsigned *pending)
{
    *now = *pending = (unsigned)d->mig;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *d, unsigned *out)
{
    *out = d->mig ? SLICES : 0;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, unsigned i,
                                        struct device **out)
{
    if (i >= (unsigned)d->slices)
        return NOT_FOUND;
    *out = d->slice[i];
    return 0;
}

int nvmlDeviceGetGpuInstanceId(struct device *d, unsigned *out)
{
    *out = (unsigned)d->gi;
    return d->is_slice ? 0 : NOT_FOUND;
}

int nvmlDeviceGetComputeInstanceId(struct device *d, unsigned *out)
{
    *out = (unsigned)d->ci;
    return d->is_slice ? 0 : NOT_FOUND;
}

int nvmlDeviceGetNvLinkState(struct device *d, unsigned link, unsigned *active)
{
    *active = link < LINKS && d->link[link][0];
    return link < LINKS ? 0 : 2;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct device *d, unsigned link, unsigned *out)
{
    *out = strcmp(d->link[link], "switch") == 0 ? 2 : 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct device *d, unsigned link,
                                        struct pci_info *out)
{
    return fill_pci(d->link[link], out);
}

/* As the driver: of a slice only its GPU tells. */
static int number(const struct device *d, unsigned value, unsigned *out)
{
    *out = value;
    return value && !d->is_slice ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(struct device *d, int which, unsigned *out)
{
    return number(d, d->clock[which == 2], out);
}

int nvmlDeviceGetMaxClockInfo(struct device *d, int which, unsigned *out)
{
    return number(d, d->max_clock[which == 2], out);
}

int nvmlDeviceGetPowerUsage(struct device *d, unsigned *out)
{
    return number(d, d->power, out);
}

int nvmlDeviceGetEnforcedPowerLimit(struct device *d, unsigned *out)
{
    return number(d, d->power_limit, out);
}

int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, unsigned long long *out)
{
    return next_reason(d, out);
}

/* The newest name is asked for first. */
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *out)
{
    (void)d;
    (void)out;
    return UNKNOWN;
}

#endif

#pragma GCC visibility pop
