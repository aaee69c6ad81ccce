/* SPDX-License-Identifier: Apache-2.0
 *
 * The recipe from the keys of Transformer Engine, and the rules of
 * accel.precision.modules.
 */
#include "precision/fp8_policy.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const char key[] = "accel.precision.modules";

/* torchao's dynamic scaling of whole tensors, which evaluations have as well. */
static const struct fp8_recipe ao = {
    .current = true,
    .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 },
    .interval = 1,
    .most_recent = true,
    .evaluation = true,
};

/* MS-AMP's: a window of one step, which is the tensor itself. */
static const struct fp8_recipe msamp = {
    .current = true,
    .powers = true,
    .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 },
    .interval = 1,
    .most_recent = true,
    .evaluation = true,
};

/* Transformer Engine's, from its keys. */
static struct fp8_recipe te_recipe(const struct config *cfg)
{
    char text[64];
    const enum fp8_blocks blocks = cfg->fp8_recipe == FP8_BLOCK   ? FP8_BLOCKS_128
                                   : cfg->fp8_recipe == FP8_MXFP8 ? FP8_BLOCKS_32
                                                                  : FP8_NO_BLOCKS;
    /* with scales of blocks E5M2 is not the default */
    const bool hybrid =
        (!blocks || config_is_given(cfg, "fp8_format")) &&
        !strcmp(config_get(cfg, "fp8_format", text, sizeof(text)), "HYBRID");
    struct fp8_recipe r = {
        .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, hybrid ? ACCEL_F8E5M2 : ACCEL_F8E4M3 },
        .current = cfg->fp8_recipe != FP8_DELAYED,
        .blocks = blocks,
        .margin = (int)config_get_int(cfg, "fp8_margin"),
        .interval = config_get_int(cfg, "fp8_interval"),
        .history = config_get_int(cfg, "fp8_amax_history_len"),
    };
    const char *word;

    config_get(cfg, "fp8_amax_compute_algo", text, sizeof(text));
    r.most_recent = !strcmp(text, "most_recent");
    r.history = r.current ? 0 : r.history;
    config_get(cfg, "fp8_use_autocast_during_eval", text, sizeof(text));
    r.evaluation = !strcmp(text, "true");
    /* "true,false,false" */
    word = config_get(cfg, "fp8_override_linear_precision", text, sizeof(text));
    for (int i = 0; i < FP8_PRODUCTS && word; i++) {
        r.wide[i] = !strncmp(word, "true", 4);
        word = strchr(word, ',');
        word = word ? word + 1 : NULL;
    }
    return r;
}

struct fp8_recipe fp8_recipe_of(const struct config *cfg)
{
    if (config_fp8_is_ao(cfg))
        return ao;
    return cfg->fp8_recipe == FP8_POWERS ? msamp : te_recipe(cfg);
}

const char *fp8_recipe_word(const struct fp8_recipe *r)
{
    static const char *const blocks[] = {
        [FP8_BLOCKS_128] = "block", [FP8_BLOCKS_32] = "mxfp8"
    };

    return r->blocks    ? blocks[r->blocks]
           : r->powers  ? "powers"
           : r->current ? "current"
                        : "delayed";
}

static accel_status_t rule_refuse(const struct config *cfg, const char *rule,
                                  const char *what, accel_error_t *err)
{
    char where[256];

    return accel_fail_at(err, A0997, config_where(cfg, key, where, sizeof(where)),
                         "write GLOB=bf16 or GLOB=fp8, separated by commas, for "
                         "example \"h.0.*=bf16, *.mlp.*=fp8\"",
                         "the rule '%s' of %s %s", rule, key, what);
}

/* "GLOB=WORD", without the blanks around it. */
static accel_status_t rule_read(const struct config *cfg, char *text,
                                struct module_rules *rules, accel_error_t *err)
{
    char *equals = strrchr(text, '=');
    bool narrow;

    if (rules->count == MODULE_RULES)
        return rule_refuse(cfg, text, "is one too many: there may be 16", err);
    if (!equals || equals == text || equals - text >= MODULE_GLOB)
        return rule_refuse(cfg, text, "has no glob of 1 to 127 characters", err);
    narrow = !strcmp(equals + 1, "fp8");
    if (!narrow && strcmp(equals + 1, "bf16") != 0)
        return rule_refuse(cfg, text, "asks for neither bf16 nor fp8", err);
    *equals = '\0';
    strcpy(rules->rule[rules->count].glob, text);
    rules->rule[rules->count++].narrow = narrow;
    return ACCEL_OK;
}

accel_status_t module_rules_read(const struct config *cfg,
                                 struct module_rules *rules_out, accel_error_t *err)
{
    char list[sizeof(cfg->precision_modules)], *save = NULL;
    accel_status_t st = ACCEL_OK;

    memset(rules_out, 0, sizeof(*rules_out));
    snprintf(list, sizeof(list), "%s", cfg->precision_modules);
    for (char *word = strtok_r(list, ",", &save); word && st == ACCEL_OK;
         word = strtok_r(NULL, ",", &save)) {
        char *end = word + strlen(word);

        while (*word == ' ')
            word++;
        while (end > word && end[-1] == ' ')
            *--end = '\0';
        st = rule_read(cfg, word, rules_out, err);
    }
    return st;
}

/* The number of the rule for that weight; -1: there is none. */
static int rule_of(const struct module_rules *rules, const char *name)
{
    const char *dot = strrchr(name, '.');
    char module[1024];

    snprintf(module, sizeof(module), "%.*s", dot ? (int)(dot - name) : 0, name);
    for (int i = 0; i < rules->count; i++)
        if (!fnmatch(rules->rule[i].glob, name, 0) ||
            !fnmatch(rules->rule[i].glob, module, 0))
            return i;
    return -1;
}

accel_status_t module_narrows(struct module_rules *rules, const char *name,
                              int64_t rows, int64_t cols, bool otherwise,
                              bool *narrow_out, accel_error_t *err)
{
    const bool fits = rows % FP8_MULTIPLE == 0 && cols % FP8_MULTIPLE == 0;
    const int i = rule_of(rules, name);

    *narrow_out = fits && (i < 0 ? otherwise : rules->rule[i].narrow);
    if (i < 0)
        return ACCEL_OK;
    rules->rule[i].hits++;
    if (fits || !rules->rule[i].narrow)
        return ACCEL_OK;
    return accel_fail(err, A0997, "use a glob that leaves it out, or other sizes",
                      "%s asks for fp8 of %s [%lld, %lld], whose sizes are not "
                      "multiples of %d",
                      key, name, (long long)rows, (long long)cols, FP8_MULTIPLE);
}

accel_status_t module_rules_used(const struct module_rules *rules, const char *some,
                                 accel_error_t *err)
{
    char hint[384];

    for (int i = 0; i < rules->count; i++) {
        if (rules->rule[i].hits)
            continue;
        snprintf(
            hint, sizeof(hint),
            "match names of linears or their weights, like %.200s; an earlier rule "
            "may take all of them",
            some);
        return accel_fail(err, A0997, hint, "the rule '%s' of %s fits no linear",
                          rules->rule[i].glob, key);
    }
    return ACCEL_OK;
}
