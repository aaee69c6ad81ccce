/* SPDX-License-Identifier: Apache-2.0
 *
 * Size and device of a run belong to its distributed_type. All sources come in; what
 * the site file, the program or the user file says about size or device is set aside
 * where a stronger source sets another type, and a note names both places. A user file
 * is written for one kind of run; its num_processes must not leak into a job file of
 * another kind. Never changes what stands beside the type itself.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/validate.h"

/* The keys that count as size and device. A program sets only the device. */
static const char *const shape_keys[] = {
    "num_processes", "num_machines", "use_cpu",         "accel.device",
    "gpu_ids",       "machine_rank", "main_process_ip", "main_process_port",
};

void shape_before(struct shape_layer *layer, const struct validator *v)
{
    layer->cfg = *v->cfg;
    memcpy(layer->value_at, v->value_at, sizeof(layer->value_at));
}

void shape_after(struct shape_layer *layer, const struct validator *v,
                 enum config_origin file)
{
    int type = config_row("distributed_type");

    /* The origin was written while the file was taken, so it is this file's. */
    layer->has_type = v->cfg->origin[type] == (unsigned char)file;
    layer->type = v->cfg->distributed_type;
}

/* How a value of a weaker file relates to the type that won. */
enum fit {
    FITS,
    /* the file describes a run of another type */
    OTHER_TYPE,
    /* the file has the same type, but the job file describes its run itself */
    OWN_SIZE,
    /* the type contradicts the value, whatever the file says */
    AGAINST,
};

/* Types that run one process per accelerator; see enum distributed_type. */
static bool needs_devices(enum distributed_type type)
{
    return type >= DIST_MULTI_GPU;
}

/* Does `key` put the run on the CPU? */
static bool says_cpu(const struct config *cfg, const char *key)
{
    return (!strcmp(key, "use_cpu") && cfg->use_cpu) ||
           (!strcmp(key, "accel.device") && cfg->device == DEVICE_CPU);
}

/* Does the value of `key` contradict the type? NO is one process, and the types for
 * accelerators cannot run on the CPU. */
static bool is_against(const struct config *cfg, const char *key)
{
    if (cfg->distributed_type == DIST_NO)
        return (!strcmp(key, "num_processes") && cfg->num_processes > 1) ||
               (!strcmp(key, "num_machines") && cfg->num_machines > 1);
    return needs_devices(cfg->distributed_type) && says_cpu(cfg, key);
}

/* `layer` is the file that gave the value of `key`. A file without a type only says "so
 * many processes, whatever runs", which fits every type. */
static enum fit shape_judge(const struct validator *v, const struct shape_layer *layer,
                            const char *key)
{
    if (is_against(v->cfg, key))
        return AGAINST;
    if (!layer->has_type)
        return FITS;
    if (layer->type != v->cfg->distributed_type)
        return OTHER_TYPE;
    return v->cfg->origin[config_row("distributed_type")] == ORIGIN_FILE ? OWN_SIZE
                                                                         : FITS;
}

/* Writes where the type that won was set: "job.yaml:1", "environment
 * ACCEL_DISTRIBUTED_TYPE". Returns buf. */
static const char *type_place(const struct validator *v, char *buf, size_t len)
{
    const struct place *at = &v->value_at[config_row("distributed_type")];
    char path[300];

    printable(path, sizeof(path), at->in->path, strlen(at->in->path));
    if (at->line)
        snprintf(buf, len, "%s:%d", path, at->line);
    else
        snprintf(buf, len, "%s", path);
    return buf;
}

/* Adds the note that the value `text` of `key`, which stood at `at`, is not applied.
 * srun shows it as well unless the job file simply has its own size, which is the
 * usual case. */
static void tell(struct validator *v, const struct shape_layer *layer, enum fit fit,
                 const char *key, const char *text, struct place at)
{
    const struct config_key *types = &v->schema[config_row("distributed_type")];
    const char *type = types->values[v->cfg->distributed_type];
    char place[320];

    type_place(v, place, sizeof(place));
    if (fit == OTHER_TYPE)
        report_add(v->report, MESSAGE_NOTE, at,
                   "if you need it, set it where that distributed_type is set",
                   "'%s: %s' is not applied: it belongs to %s distributed_type %s, "
                   "but %s says %s",
                   key, text,
                   at.in->origin == ORIGIN_PROGRAM ? "the program's" : "this file's",
                   types->values[layer->type], place, type);
    else if (fit == OWN_SIZE)
        report_add(v->report, MESSAGE_NOTE, at,
                   "if you need it, set it where that distributed_type is set",
                   "'%s: %s' is not applied: %s sets distributed_type, and with it "
                   "size and device",
                   key, text, place);
    else
        report_add(v->report, MESSAGE_NOTE, at, "remove one of the two",
                   "'%s: %s' is not applied: %s says distributed_type %s", key, text,
                   place, type);
    if (fit != OWN_SIZE)
        report_tell(v->report);
}

/* Puts back the value of the weaker sources. Adds a note only if the value changes
 * by that. */
static void set_aside(struct validator *v, const struct shape_layer *layer,
                      enum fit fit, const char *key, size_t row)
{
    const struct config_key *k = &v->schema[row];
    struct place at = v->value_at[row];
    char was[256], is[256], shown[60];

    config_value_text(v->cfg, k, was, sizeof(was));
    value_restore(v->cfg, &layer->cfg, row);
    v->value_at[row] = layer->value_at[row];
    config_value_text(v->cfg, k, is, sizeof(is));
    if (strcmp(was, is) != 0)
        tell(v, layer, fit, key, printable(shown, sizeof(shown), was, strlen(was)), at);
}

/* A lock holds even here. Where it makes the run impossible, the error names
 * both places. */
static void refuse_locked(struct validator *v, const char *key, size_t row)
{
    const struct config_key *types = &v->schema[config_row("distributed_type")];
    const struct place *lock = &v->lock_at[row];
    struct place at = place_of(v, "distributed_type", TOP_LEVEL);
    char path[300];

    if (!says_cpu(v->cfg, key) || !needs_devices(v->cfg->distributed_type))
        return; /* a size that does not fit is told by the checks of sizes */
    printable(path, sizeof(path), lock->in->path, strlen(lock->in->path));
    report_add(
        v->report, A0128, at,
        "use distributed_type: FSDP (sharded) or MULTI_CPU (copies)",
        "distributed_type %s needs GPUs, but the site keeps every run on the CPU "
        "(%s:%d locks %s)",
        types->values[v->cfg->distributed_type], path, lock->line, key);
}

/* Each turn removes one layer: the value that is left may come from the site file, and
 * is judged in its turn. The origin gets weaker each time, so the loop ends. */
void shape_settle(struct validator *v, const struct shape_layer before[ORIGIN_FILE])
{
    unsigned char type = v->cfg->origin[config_row("distributed_type")];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape_keys); i++) {
        size_t row = (size_t)config_row(shape_keys[i]);

        /* Only values below the job file that are weaker than the type. The job file,
         * variables and flags are always meant for this run. */
        while (v->cfg->origin[row] != ORIGIN_DEFAULT && v->cfg->origin[row] < type &&
               v->cfg->origin[row] < ORIGIN_FILE) {
            const struct shape_layer *layer = &before[v->cfg->origin[row]];
            enum fit fit = shape_judge(v, layer, shape_keys[i]);

            if (v->cfg->locked[row])
                refuse_locked(v, shape_keys[i], row);
            if (fit == FITS || v->cfg->locked[row])
                break;
            set_aside(v, layer, fit, shape_keys[i], row);
        }
    }
}
