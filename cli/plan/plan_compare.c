/* SPDX-License-Identifier: Apache-2.0
 *
 * `accel plan`, comparisons: the same run with every strategy, or with every level of
 * precision, a row each. In: what plan_model.c found. Out: a table or JSON on stdout.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/plan/plan_cmd.h"
#include "precision/levels.h"
#include "precision/policy.h"

/* Numbers of a row. */
enum { KINDS = 10 };

/* Plain bytes for scripts, a unit for readers. */
static void bytes_cell(int64_t bytes, bool json, char *buf, size_t len)
{
    if (json)
        snprintf(buf, len, "%lld", (long long)bytes);
    else
        format_bytes((double)bytes, buf, len);
}

/* "-": there is no GPU, or its memory is not known. */
static const char *fits_word(const struct plan_input *in, const struct plan *p)
{
    const struct plan_device *d = &in->device;

    if (!d->present || d->memory_bytes == 0)
        return "-";
    return p->total_bytes <= d->memory_bytes ? "yes" : "no";
}

/* One plan as a row: memory by kind, then bytes sent inside and between nodes per
 * step. `last`: the last cell; NULL: the bytes of a checkpoint. */
static void plan_row(struct cli_table *t, const char *name, const struct plan_input *in,
                     const char *last, bool json)
{
    struct plan p;
    /* In the order of the columns. */
    int64_t kind[KINDS];
    char cell[KINDS][32];

    plan_compute(in, &p);
    kind[0] = p.param_bytes;
    kind[1] = p.moment_bytes;
    kind[2] = p.gradient_bytes;
    kind[3] = p.gather_bytes + p.code_bytes;
    kind[4] = p.reduce_bytes;
    kind[5] = p.activation_bytes;
    kind[6] = p.total_bytes;
    kind[7] = p.wire.node;
    kind[8] = p.wire.network;
    kind[9] = p.checkpoint_bytes;
    for (int i = 0; i < KINDS; i++)
        bytes_cell(kind[i], json, cell[i], sizeof(cell[i]));
    cli_table_row(t, (const char *[]){ name, cell[0], cell[1], cell[2], cell[3],
                                       cell[4], cell[5], cell[6], fits_word(in, &p),
                                       cell[7], cell[8], last ? last : cell[9] });
}

static void layout_row(struct cli_table *t, const struct plan_input *in, bool json)
{
    plan_row(t, in->layout.name, in, in->layout.runs ? "yes" : "not yet", json);
}

/* This config's strategy first, then all others on the same ranks, each with the
 * config's context-, sequence- and tensor-parallel groups. */
int plan_show_all(const struct planned *p, bool json)
{
    static const char *const columns[] = {
        "STRATEGY",  "#PARAMETERS",  "#MOMENTS", "#GRADIENTS", "#GATHER",
        "#REDUCE",   "#ACTIVATIONS", "#PEAK",    "FITS",       "#SENT_IN_NODE",
        "#SENT_OUT", "SUPPORTED",    NULL
    };
    const struct plan_layout *own = &p->in.layout;
    /* Ranks that the other axes take: the strategies share out what remains. */
    int others = own->cp * own->sp * own->tp;
    struct cli_table *t = cli_table_new("strategies", columns);
    struct plan_input in = p->in;
    int local = in.local_size / others;

    if (!t)
        return cli_no_memory("the comparison");
    /* what each must have: logits are kept only in what is left */
    in.kept_bytes = 0;
    layout_row(t, &in, json);
    for (int i = 0;
         plan_layout_at(i, in.world / others, local > 0 ? local : 1, &in.layout); i++) {
        /* Shown first already. */
        if (strcmp(in.layout.name, own->name) == 0)
            continue;
        in.layout.cp = own->cp;
        in.layout.sp = own->sp;
        in.layout.tp = own->tp;
        /* A strategy that runs alone need not run beside the other axes. */
        in.layout.runs = in.layout.runs && others == 1;
        layout_row(t, &in, json);
    }
    return cli_table_print(t, json);
}

/* The run with one level; NULL: as its config is. An error is kept for the caller. */
static accel_status_t level_row(struct cli_table *t, const struct planned *p,
                                const struct precision_level *level, bool json,
                                accel_error_t *err)
{
    struct config config = *p->config;
    struct planned again;
    accel_status_t st;

    if (level && !precision_level_set(level, &config))
        return accel_fail_nomem(err, "a text of the config", sizeof(config.given));
    st = plan_again(p, &config, &again, err);
    /* Rules for modules may ask for what this level has not. */
    if (st == ACCEL_ECONFIG && level && config.precision_modules[0]) {
        plan_free(&again);
        config.precision_modules[0] = '\0';
        st = plan_again(p, &config, &again, err);
    }
    if (st == ACCEL_OK)
        plan_row(t, level ? level->name : "this config", &again.in, NULL, json);
    plan_free(&again);
    return st;
}

/* NULL: its settings are none of the list. */
static const struct precision_level *level_of(const struct config *config)
{
    for (int i = 0; precision_level_at(i); i++)
        if (precision_level_is(precision_level_at(i), config))
            return precision_level_at(i);
    return NULL;
}

/* This config's level first, then all others in the order of their list. */
int plan_show_levels(const struct planned *p, bool json)
{
    static const char *const columns[] = {
        "PRECISION", "#PARAMETERS",  "#MOMENTS", "#GRADIENTS", "#GATHER",
        "#REDUCE",   "#ACTIVATIONS", "#PEAK",    "FITS",       "#SENT_IN_NODE",
        "#SENT_OUT", "#CHECKPOINT",  NULL
    };
    const struct precision_level *own = level_of(p->config);
    struct cli_table *t = cli_table_new("levels", columns);
    accel_error_t err = { 0 };
    accel_status_t st;

    if (!t)
        return cli_no_memory("the comparison");
    st = level_row(t, p, own, json, &err);
    for (int i = 0; st == ACCEL_OK && precision_level_at(i); i++)
        if (precision_level_at(i) != own)
            st = level_row(t, p, precision_level_at(i), json, &err);
    if (st != ACCEL_OK) {
        cli_table_free(t);
        return cli_fail(&err);
    }
    return cli_table_print(t, json);
}
