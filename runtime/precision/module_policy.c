/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of accel.precision.modules, and the dtypes that they give a module.
 */
#include "precision/module_policy.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "precision/policy.h"

static const char key[] = "accel.precision.modules";

static const char *const words[] = { [MODULE_FP32] = "fp32",
                                     [MODULE_BF16] = "bf16",
                                     [MODULE_FP16] = "fp16",
                                     [MODULE_FP8] = "fp8" };
static const accel_dtype_t word_types[] = {
    [MODULE_FP32] = ACCEL_F32, [MODULE_BF16] = ACCEL_BF16, [MODULE_FP16] = ACCEL_F16
};

/* The number of the word text[len]; 0: it is none. */
static int word_of(const char *text, size_t len)
{
    for (int i = MODULE_FP32; i <= MODULE_FP8; i++)
        if (strlen(words[i]) == len && !memcmp(words[i], text, len))
            return i;
    return 0;
}

/* "output:fp32" or "reduce:bf16", once each. */
static bool read_part(const char *text, size_t len, struct module_choice *c)
{
    static const char output[] = "output:", reduce[] = "reduce:";
    const size_t name = sizeof(output) - 1;
    const bool is_output = len > name && !memcmp(text, output, name);
    const bool is_reduce = len > name && !memcmp(text, reduce, name);
    const int word = is_output || is_reduce ? word_of(text + name, len - name) : 0;

    if (!word || word == MODULE_FP8 || (is_output ? c->has_output : c->has_reduce))
        return false;
    if (is_output) {
        c->has_output = true;
        c->output = word_types[word];
    } else {
        c->has_reduce = true;
        c->reduce = word_types[word];
    }
    return true;
}

bool module_choice_read(const char *text, struct module_choice *choice_out)
{
    size_t len = strcspn(text, "+");
    struct module_choice c = { 0 };

    c.compute = word_of(text, len);
    while (c.compute && text[len]) {
        text += len + 1;
        len = strcspn(text, "+");
        if (!read_part(text, len, &c))
            return false;
    }
    *choice_out = c;
    return c.compute != MODULE_INHERITS;
}

static accel_status_t rule_refuse(const struct config *cfg, const char *rule,
                                  const char *what, accel_error_t *err)
{
    char where[256];

    return accel_fail_at(err, A0997, config_where(cfg, key, where, sizeof(where)),
                         "write GLOB=fp32, bf16, fp16 or fp8, separated by commas, for "
                         "example \"h.0.*=bf16, *.mlp.*=fp8\"",
                         "the rule '%s' of %s %s", rule, key, what);
}

/* "GLOB=WORD", without the blanks around it. */
static accel_status_t rule_read(const struct config *cfg, char *text,
                                struct module_rules *rules, accel_error_t *err)
{
    char *equals = strrchr(text, '=');

    if (rules->count == MODULE_RULES)
        return rule_refuse(cfg, text, "is one too many: there may be 16", err);
    if (!equals || equals == text || equals - text >= MODULE_GLOB)
        return rule_refuse(cfg, text, "has no glob of 1 to 127 characters", err);
    if (!module_choice_read(equals + 1, &rules->rule[rules->count].choice))
        return rule_refuse(cfg, text, "asks for none of fp32, bf16, fp16 and fp8", err);
    *equals = '\0';
    strcpy(rules->rule[rules->count++].glob, text);
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

/* Does the glob fit the name, or what is left of it without its last parts? */
static bool fits(const char *glob, const char *name)
{
    char left[1024];
    char *dot = left;

    snprintf(left, sizeof(left), "%s", name);
    while (dot) {
        if (!fnmatch(glob, left, 0))
            return true;
        dot = strrchr(left, '.');
        if (dot)
            *dot = '\0';
    }
    return false;
}

int module_rule_of(const struct module_rules *rules, const char *name)
{
    for (int i = 0; i < rules->count; i++)
        if (fits(rules->rule[i].glob, name))
            return i;
    return -1;
}

struct module_types module_types_of(const struct config *cfg)
{
    const struct precision p = precision_of(cfg);

    return (struct module_types){ p.compute, p.compute, p.reduce };
}

accel_status_t module_types_choose(const struct config *cfg,
                                   const struct module_choice *choice,
                                   struct module_types around, const char *name,
                                   struct module_types *types_out, accel_error_t *err)
{
    const struct precision p = precision_of(cfg);
    /* what fp8 leaves wide has the run's types */
    const accel_dtype_t t =
        choice->compute == MODULE_FP8 ? p.compute : word_types[choice->compute];
    const bool narrow = t == ACCEL_F16 ||
                        (choice->has_output && choice->output == ACCEL_F16) ||
                        (choice->has_reduce && choice->reduce == ACCEL_F16);

    if (narrow && !p.scaled)
        return accel_fail(err, A0997, "use bf16 or fp32, or mixed_precision: fp16",
                          "fp16 is asked for module '%s', but only runs with "
                          "mixed_precision: fp16 have a loss scale",
                          name);
    if (t != p.compute && p.masters != ACCEL_F32)
        return accel_fail(err, A0997,
                          "use accel.precision.masters: float32, or leave it out",
                          "%s for module '%s' is not supported where "
                          "masters are narrow and the run computes in %s",
                          accel_dtype_name(t), name, accel_dtype_name(p.compute));
    *types_out = (struct module_types){
        .compute = t,
        .output = choice->has_output ? choice->output : around.compute,
        .reduce = choice->has_reduce           ? choice->reduce
                  : cfg->reduce != REDUCE_AUTO ? p.reduce
                                               : t,
    };
    return ACCEL_OK;
}

accel_status_t module_rules_used(const struct module_rules *rules, bool narrow,
                                 const char *some, accel_error_t *err)
{
    char hint[384];

    for (int i = 0; i < rules->count; i++) {
        if (rules->rule[i].hits ||
            narrow != (rules->rule[i].choice.compute == MODULE_FP8))
            continue;
        snprintf(hint, sizeof(hint),
                 "match names of modules or their weights, like %.200s; an earlier "
                 "rule may take all of them",
                 some);
        return accel_fail(err, A0997, hint, "the rule '%s' of %s fits no %s",
                          rules->rule[i].glob, key, narrow ? "linear" : "module");
    }
    return ACCEL_OK;
}
