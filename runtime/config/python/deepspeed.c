/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSpeed's JSON file, read with the capped YAML reader after a check that it is
 * strict JSON (JSON is a subset of YAML); and the rules of deepspeed_config, whose keys
 * the file can replace.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/python/deepspeed.h"
#include "config/read/validate.h"

/* ---- the file -------------------------------------------------------------------- */

/* One parse of the file. */
struct reader {
    const struct yaml_tree *tree;
    struct config_report *report;
};

/* The value of key `name` in a map, or NULL. `map` may be NULL or no map. */
static const struct yaml_node *child(const struct reader *r,
                                     const struct yaml_node *map, const char *name)
{
    const struct yaml_node *node = r->tree->node;

    if (!map || map->kind != NODE_MAP)
        return NULL;
    for (int i = map->first; i >= 0; i = node[node[i].next].next)
        if (node[i].kind == NODE_SCALAR && !strcmp(node[i].text, name))
            return &node[node[i].next];
    return NULL;
}

/* The same for a value that must be an object; anything else is reported. */
static const struct yaml_node *child_map(const struct reader *r,
                                         const struct yaml_node *map, const char *name)
{
    const struct yaml_node *n = child(r, map, name);

    if (n && n->kind != NODE_MAP) {
        report_add(r->report, A0152, n->at, "write it as an object, {...}",
                   "\"%s\" must be an object", name);
        return NULL;
    }
    return n;
}

/* Reports a key that is given twice; DeepSpeed refuses that as well. Quadratic, but the
 * reader caps the keys. */
static void check_twice(const struct reader *r, const struct yaml_node *map)
{
    const struct yaml_node *node = r->tree->node;

    for (int i = map->first; i >= 0; i = node[node[i].next].next)
        for (int j = map->first; j != i; j = node[node[j].next].next)
            if (!strcmp(node[i].text, node[j].text)) {
                char name[60];

                report_add(
                    r->report, A0152, node[i].at, "keep one of the two",
                    "\"%s\" is given twice",
                    printable(name, sizeof(name), node[i].text, strlen(node[i].text)));
                return;
            }
}

static const char *const devices[] = { "none", "cpu", "nvme", NULL };
/* Rows for value_check. They need no place in the schema table. */
#define DEVICE                                                                         \
    {                                                                                  \
        .type = TYPE_ENUM, .values = devices, .offset = SIZE_MAX                       \
    }
#define WHOLE(least, most)                                                             \
    {                                                                                  \
        .type = TYPE_INT, .min = least, .max = most, .offset = SIZE_MAX                \
    }
#define COUNT WHOLE(1, 1 << 20)
#define NUMBER                                                                         \
    {                                                                                  \
        .type = TYPE_NUMBER, .max = 1e30, .offset = SIZE_MAX                           \
    }
#define INTO(f)                                                                        \
    .at = offsetof(struct deepspeed_file, f),                                          \
    .len = sizeof(((struct deepspeed_file *)0)->f)
/* What is read: the path of a key (up to two maps and a name), the type of its value,
 * and the field of struct deepspeed_file it goes to. */
static const struct value {
    const char *map, *inner, *name;
    struct config_key kind;
    size_t at, len;
} values[] = {
    { "zero_optimization", NULL, "stage", WHOLE(0, 3), INTO(zero_stage) },
    { "zero_optimization", "offload_optimizer", "device", DEVICE,
      INTO(offload_optimizer_device) },
    { "zero_optimization", "offload_param", "device", DEVICE,
      INTO(offload_param_device) },
    { NULL, NULL, "gradient_accumulation_steps", COUNT,
      INTO(gradient_accumulation_steps) },
    { NULL, NULL, "gradient_clipping", NUMBER, INTO(gradient_clipping) },
    { "bf16", NULL, "enabled", { .type = TYPE_BOOL, .offset = SIZE_MAX }, INTO(bf16) },
    { "fp16", NULL, "enabled", { .type = TYPE_BOOL, .offset = SIZE_MAX }, INTO(fp16) },
    { "fp16", NULL, "loss_scale", NUMBER, INTO(loss_scale) },
    { "fp16", NULL, "initial_scale_power", WHOLE(0, 64), INTO(scale_power) },
    { "fp16", NULL, "loss_scale_window", COUNT, INTO(scale_window) },
    { NULL, NULL, "train_micro_batch_size_per_gpu", COUNT, INTO(micro_batch) },
    { NULL, NULL, "train_batch_size", COUNT, INTO(train_batch) },
};

/* Reports a value that its row does not take. */
static void wrong_value(const struct reader *r, const struct value *v,
                        const struct yaml_node *n)
{
    char shown[60], cure[120];

    switch (v->kind.type) {
    case TYPE_BOOL:
        snprintf(cure, sizeof(cure), "write true, false or \"auto\"");
        break;
    case TYPE_ENUM:
        snprintf(cure, sizeof(cure), "write \"none\", \"cpu\" or \"nvme\"");
        break;
    default:
        text_format(cure, sizeof(cure),
                    "write a %snumber from %.0f to %.7g, or \"auto\"",
                    v->kind.type == TYPE_INT ? "whole " : "", v->kind.min, v->kind.max);
    }
    if (n->kind == NODE_SCALAR)
        report_add(r->report, A0152, n->at, cure, "\"%s\" cannot be %s%s%s", v->name,
                   n->plain ? "" : "\"",
                   printable(shown, sizeof(shown), n->text, strlen(n->text)),
                   n->plain ? "" : "\"");
    else
        report_add(r->report, A0152, n->at, cure, "\"%s\" cannot be %s", v->name,
                   n->kind == NODE_MAP ? "an object" : "a list");
}

/* Reads one value into its field. Absent, null and "auto" leave the field empty. JSON's
 * numbers and truth words have no quotes, its words do. */
static void read_value(const struct reader *r, const struct yaml_node *map,
                       const struct value *v, char *out)
{
    const struct yaml_node *n = child(r, map, v->name);
    bool scalar = n && n->kind == NODE_SCALAR;

    if (!n || (scalar && (n->plain ? word_null(n->text) : !strcmp(n->text, "auto"))))
        return;
    if (scalar && n->plain == (v->kind.type != TYPE_ENUM) && strlen(n->text) < v->len &&
        value_check(&v->kind, n->text) == VALUE_OK)
        snprintf(out, v->len, "%s", n->text);
    else
        wrong_value(r, v, n);
}

/* Sections that libaccel can ignore: those that have keys of ours, and those that
 * change how fast DeepSpeed is or what it reports, not what is trained. */
static const char *const harmless[] = {
    "zero_optimization",
    "bf16",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "activation_checkpointing",
    "aio",
    "autotuning",
    "checkpoint",
    "comms_logger",
    "compile",
    "csv_monitor",
    "comet",
    "disable_allgather",
    "dump_state",
    "elasticity",
    "flops_profiler",
    "memory_breakdown",
    "monitor_config",
    "nebula",
    "steps_per_print",
    "tensorboard",
    "timers",
    "wall_clock_breakdown",
    "wandb",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    NULL,
};

/* Is the section switched off, by {}, false, null or "enabled": false? */
static bool is_off(const struct reader *r, const struct yaml_node *val)
{
    const struct yaml_node *enabled = child(r, val, "enabled");

    if (enabled && enabled->kind == NODE_SCALAR)
        val = enabled;
    return is_absent(val) || (val->kind == NODE_SCALAR && val->plain &&
                              (word_bool(val->text) == 0 || !strcmp(val->text, "0")));
}

/* Writes the first section that only DeepSpeed implements. */
static void find_more(const struct reader *r, char *out, size_t len)
{
    const struct yaml_node *node = r->tree->node;

    for (int i = node[0].first; i >= 0; i = node[node[i].next].next)
        if (node[i].kind == NODE_SCALAR && word_index(harmless, node[i].text) < 0 &&
            !is_off(r, &node[node[i].next])) {
            printable(out, len, node[i].text, strlen(node[i].text));
            return;
        }
}

/* Reads all values from the tree. Goes on after a problem, so that all are shown. */
static void read_root(const struct reader *r, struct deepspeed_file *file_out)
{
    const struct yaml_node *root = &r->tree->node[0];
    const struct yaml_node *zero = child(r, root, "zero_optimization");

    check_twice(r, root);
    if (zero && zero->kind == NODE_MAP)
        check_twice(r, zero);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(values); i++) {
        const struct value *v = &values[i];
        const struct yaml_node *map = root;

        if (v->map)
            map = child_map(r, map, v->map);
        if (v->inner)
            map = child_map(r, map, v->inner);
        read_value(r, map, v, (char *)file_out + v->at);
    }
    find_more(r, file_out->more, sizeof(file_out->more));
    if (!child(r, zero, "stage"))
        snprintf(file_out->zero_stage, sizeof(file_out->zero_stage), "0");
    if (!strcmp(file_out->bf16, "true") && !strcmp(file_out->fp16, "true"))
        report_add(r->report, A0152, child(r, root, "fp16")->at,
                   "set \"enabled\" of one of them to false",
                   "bf16 and fp16 exclude each other");
}

/* Parses r->in.text. The grammar comes first: after a syntax error YAML's messages
 * would mislead. */
static void parse_text(struct config_report *r, struct deepspeed_file *file_out)
{
    struct yaml_tree tree;
    struct reader reader = { .tree = &tree, .report = r };
    const struct config_text given = r->in;
    char *text;
    size_t len;

    memset(file_out, 0, sizeof(*file_out));
    if (!json_check(r))
        return;
    text = json_for_yaml(given.text, given.len, &len);
    if (text) {
        r->in.text = text;
        r->in.len = len;
    }
    if (yaml_tree_read(&tree, r)) {
        if (tree.count && tree.node[0].kind == NODE_MAP)
            read_root(&reader, file_out);
        else
            report_add(r, A0151, (struct place){ 0 }, "write one object, {...}",
                       "a DeepSpeed file must be one JSON object");
    }
    yaml_tree_free(&tree);
    r->in = given;
    free(text);
}

/* A report of its own for the DeepSpeed file, since its places are in its own text. It
 * shares the list of messages. */
static struct config_report open_report(struct config_diags *diags, const char *path,
                                        enum config_origin origin)
{
    return (struct config_report){ .diags = diags,
                                   .in = { .path = path, .origin = origin } };
}

accel_status_t config_deepspeed_parse(const char *path, const char *text, size_t len,
                                      struct deepspeed_file *file_out,
                                      struct config_diags *diags_out,
                                      accel_error_t *err)
{
    struct config_report r = open_report(diags_out, path, ORIGIN_FILE);

    memset(diags_out, 0, sizeof(*diags_out));
    printable(diags_out->path, sizeof(diags_out->path), path, strlen(path));
    r.in.text = text;
    r.in.len = len;
    parse_text(&r, file_out);
    return report_finish(&r, err);
}

/* ---- deepspeed_config ------------------------------------------------------------ */

/* Reports keys that the file replaces but that are given beside it: one of the two
 * would be ignored. False: there are some. */
static bool check_beside_file(struct validator *v)
{
    static const char *const keys[] = {
        "zero_stage",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "offload_optimizer_device",
        "offload_param_device",
        "offload_optimizer_nvme_path",
        "offload_param_nvme_path",
        "zero3_save_16bit_model",
    };
    bool good = true;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(keys); i++) {
        if (!config_is_given(v->cfg, keys[i]))
            continue;
        report_add(v->report, A0150, place_of(v, keys[i], DEEPSPEED_CONFIG),
                   "move it into the DeepSpeed file, or remove deepspeed_config_file",
                   "'%s' cannot be combined with deepspeed_config_file", keys[i]);
        good = false;
    }
    return good;
}

/* Takes the file's value for a key. The key does not count as given, so that a Python
 * program still gets it from the file. Locks hold. */
static void take_from_file(struct validator *v, const char *name, const char *text)
{
    int row = config_row(name);

    if (text[0] &&
        !lock_refuses(v, (size_t)row, text,
                      place_of(v, "deepspeed_config_file", DEEPSPEED_CONFIG)))
        value_set(v->cfg, &v->schema[row], text);
}

/* bf16 and fp16 in the file set mixed_precision, or must agree with it. */
static void check_precision(struct validator *v, const struct deepspeed_file *f)
{
    const char *word = !strcmp(f->bf16, "true")   ? "bf16"
                       : !strcmp(f->fp16, "true") ? "fp16"
                                                  : NULL;
    char now[16];

    if (!word)
        return;
    config_get(v->cfg, "mixed_precision", now, sizeof(now));
    if (!config_is_given(v->cfg, "mixed_precision"))
        take_from_file(v, "mixed_precision", word);
    else if (strcmp(now, word) != 0)
        report_add(v->report, A0153, place_of(v, "mixed_precision", TOP_LEVEL),
                   "make the two agree, or write \"auto\" in the DeepSpeed file",
                   "mixed_precision is %s, but the DeepSpeed file enables %s", now,
                   word);
}

/* The loss scale of fp16, with DeepSpeed's defaults. A fixed one is DeepSpeed's alone.
 * Its hysteresis and least scale have no counterpart: a scale falls with every
 * overflow, and as far as it must. */
static void take_scale(struct validator *v, const struct deepspeed_file *f)
{
    char text[32];

    if (strcmp(f->fp16, "true") != 0)
        return;
    if (text_number(f->loss_scale, NULL) > 0 && !v->cfg->deepspeed_more[0])
        snprintf(v->cfg->deepspeed_more, sizeof(v->cfg->deepspeed_more),
                 "fp16: loss_scale");
    snprintf(text, sizeof(text), "%.0f",
             ldexp(1, f->scale_power[0] ? atoi(f->scale_power) : 16));
    take_from_file(v, "loss_scale_init_scale", text);
    take_from_file(v, "loss_scale_growth_interval",
                   f->scale_window[0] ? f->scale_window : "1000");
}

/* DeepSpeed's own rule: micro-batch x accumulation x processes = batch. Checked only
 * when all four are known; "auto" is not. */
static void check_batch(struct validator *v, const struct deepspeed_file *f)
{
    long long micro = atoll(f->micro_batch), batch = atoll(f->train_batch);
    long long steps = atoll(f->gradient_accumulation_steps);
    long long world = v->cfg->num_processes;

    if (micro > 0 && batch > 0 && steps > 0 && world > 0 &&
        (batch % micro || batch / micro % world || batch / micro / world != steps))
        report_add(v->report, A0154,
                   place_of(v, "deepspeed_config_file", DEEPSPEED_CONFIG),
                   "write \"auto\" for one of the three in the DeepSpeed file",
                   "train_batch_size %lld does not equal %lld micro-batch x %lld "
                   "accumulation x %lld processes",
                   batch, micro, steps, world);
}

/* Writes the path of the DeepSpeed file. A relative one starts at the directory of the
 * config file that names it; one from a variable or flag, at the current directory. */
static void file_path(const struct config_text *in, const char *name, char *buf,
                      size_t len)
{
    const char *slash = in && in->text ? strrchr(in->path, '/') : NULL;
    int dir = slash && name[0] != '/' ? (int)(slash - in->path) + 1 : 0;

    snprintf(buf, len, "%.*s%s", dir, dir ? in->path : "", name);
}

/* Replaces the path by an absolute one, because tasks and programs may run in
 * another directory. */
static void keep_absolute(struct validator *v, const char *path)
{
    const struct config_key *k = &v->schema[config_row("deepspeed_config_file")];
    char *absolute = realpath(path, NULL);

    if (!absolute)
        /* It was opened a moment ago, so only memory can be missing. */
        v->report->no_memory = true;
    else if (value_set(v->cfg, k, absolute) != VALUE_OK)
        report_add(v->report, A0103, place_of(v, k->name, DEEPSPEED_CONFIG),
                   "move the file to a shorter path", "'%s' is longer than %.0f bytes",
                   k->name, k->max);
    free(absolute);
}

/* Reads the DeepSpeed file and takes its values for the keys it replaces. Its first
 * error becomes ours if there is none before. */
static void check_file(struct validator *v, const char *name)
{
    struct place at = place_of(v, "deepspeed_config_file", DEEPSPEED_CONFIG);
    char path[2200];
    /* A file that the site names must be as trusted as the site file. */
    bool by_site = at.in && at.in->origin == ORIGIN_SITE;
    struct config_report r =
        open_report(v->report->diags, path, by_site ? ORIGIN_SITE : ORIGIN_FILE);
    struct deepspeed_file f = { 0 };
    size_t errors = r.diags->errors;

    file_path(at.in, name, path, sizeof(path));
    config_file_read(&r);
    if (r.in.text)
        parse_text(&r, &f);
    free((char *)r.in.text);
    v->report->no_memory |= r.no_memory;
    if (r.first.code && !v->report->first.code) {
        v->report->first = r.first;
        v->report->first_order = r.first_order;
    }
    if (r.no_memory || r.diags->errors > errors)
        return;
    keep_absolute(v, path);
    take_from_file(v, "zero_stage", f.zero_stage);
    take_from_file(v, "offload_optimizer_device", f.offload_optimizer_device);
    take_from_file(v, "offload_param_device", f.offload_param_device);
    take_from_file(v, "gradient_accumulation_steps", f.gradient_accumulation_steps);
    take_from_file(v, "gradient_clipping", f.gradient_clipping);
    memcpy(v->cfg->deepspeed_more, f.more, sizeof(f.more));
    check_precision(v, &f);
    take_scale(v, &f);
    check_batch(v, &f);
}

/* Adds a note when a key is given that needs a higher ZeRO stage. */
static void note_needs_stage(struct validator *v, const char *name, int stage)
{
    char text[1100];

    config_get(v->cfg, name, text, sizeof(text));
    if (!config_is_given(v->cfg, name) || !strcmp(text, "none") ||
        !strcmp(text, "false") || config_get_int(v->cfg, "zero_stage") >= stage)
        return;
    report_add(v->report, MESSAGE_NOTE, place_of(v, name, DEEPSPEED_CONFIG),
               "raise zero_stage to use it", "'%s' has no effect below zero_stage %d",
               name, stage);
}

/* With a DeepSpeed file, nothing may be given beside it; the file's own keys are
 * then checked. */
void check_deepspeed(struct validator *v)
{
    char file[1100];
    bool by_program =
        v->cfg->origin[config_row("deepspeed_config_file")] == ORIGIN_PROGRAM;

    if (v->cfg->distributed_type != DIST_DEEPSPEED) {
        note_unused_map(v, DEEPSPEED_CONFIG, "distributed_type", "DEEPSPEED");
        return;
    }
    config_get(v->cfg, "deepspeed_config_file", file, sizeof(file));
    if (file[0] && strcmp(file, "none") != 0) {
        if (check_beside_file(v) && (by_program || !v->is_resolved))
            check_file(v, file);
        return;
    }
    note_needs_stage(v, "offload_optimizer_device", 1);
    note_needs_stage(v, "offload_param_device", 3);
    note_needs_stage(v, "zero3_init_flag", 3);
    note_needs_stage(v, "zero3_save_16bit_model", 3);
}
