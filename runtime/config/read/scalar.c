/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, numbers and canonical values: text <-> the field of struct config that a
 * schema row points to. Independent of the locale of the program that links it.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/read/document.h"

/* Exact match; `list` may be NULL. */
int word_index(const char *const *list, const char *word)
{
    for (int i = 0; list && list[i]; i++)
        if (!strcmp(list[i], word))
            return i;
    return -1;
}

/* Is `s` the word `lower` in lower, Capital or UPPER case? YAML 1.1 knows no other
 * forms: "nO" is a string. */
static bool yaml_is_word(const char *s, const char *lower)
{
    size_t n = strlen(lower);
    bool all_lower = true, all_upper = true, capital = true;

    if (strlen(s) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char up = (char)toupper((unsigned char)lower[i]);

        all_lower &= s[i] == lower[i];
        all_upper &= s[i] == up;
        capital &= s[i] == (i ? lower[i] : up);
    }
    return all_lower || all_upper || capital;
}

/* YAML 1.1 also has y and n, but PyYAML leaves those as strings, and so do we. */
int word_bool(const char *s)
{
    static const char *const words[2][3] = { { "no", "off", "false" },
                                             { "yes", "on", "true" } };

    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 3; i++)
            if (yaml_is_word(s, words[value][i]))
                return value;
    return -1;
}

/* The words of Accelerate's str_to_bool, in any case. */
int word_truth(const char *s)
{
    static const char *const words[2][6] = { { "no", "off", "false", "n", "f", "0" },
                                             { "yes", "on", "true", "y", "t", "1" } };

    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 6; i++)
            if (!strcasecmp(s, words[value][i]))
                return value;
    return -1;
}

bool word_null(const char *s)
{
    return !*s || !strcmp(s, "~") || yaml_is_word(s, "null");
}

/* Decimal digits with an optional sign. A leading zero makes a number octal in YAML
 * 1.1; it is refused because nobody means that. */
static enum value_result parse_int(const char *s, int64_t *value_out)
{
    const char *digits = s + (*s == '-' || *s == '+');
    long long v;

    if (!*digits || strspn(digits, "0123456789") != strlen(digits) ||
        (digits[0] == '0' && digits[1]))
        return VALUE_TYPE;
    errno = 0;
    v = strtoll(s, NULL, 10);
    if (errno)
        return VALUE_RANGE;
    *value_out = v;
    return VALUE_OK;
}

/* A number in decimal. */
static enum value_result parse_number(const char *s, double *value_out)
{
    char *end;
    double v;

    /* No hexadecimal, infinity or NaN. */
    if (strspn(s, "0123456789.eE+-") != strlen(s) || !strpbrk(s, "0123456789"))
        return VALUE_TYPE;
    v = text_number(s, &end);
    if (*end)
        return VALUE_TYPE;
    *value_out = v;
    return isfinite(v) ? VALUE_OK : VALUE_RANGE;
}

/* The shorter of %.15g and %.17g that reads back as the same number. */
static void number_text(double v, char *buf, size_t len)
{
    text_format(buf, len, "%.15g", v);
    if (text_number(buf, NULL) != v)
        text_format(buf, len, "%.17g", v);
}

/* Checks a number of either type against the bounds of the row; stores it
 * if `store`. */
static enum value_result set_number(struct config *cfg, const struct config_key *key,
                                    const char *text, bool store)
{
    const bool whole = key->type == TYPE_INT;
    int64_t i = 0;
    double v = 0;
    enum value_result res = whole ? parse_int(text, &i) : parse_number(text, &v);

    if (whole)
        v = (double)i;
    if (res == VALUE_OK && (v < key->min || v > key->max))
        res = VALUE_RANGE;
    if (res == VALUE_OK && store && whole)
        memcpy((char *)cfg + key->offset, &i, sizeof(i));
    else if (res == VALUE_OK && store)
        memcpy((char *)cfg + key->offset, &v, sizeof(v));
    return res;
}

/* Keeps the text of a row without a field. A text that fits overwrites the older one; a
 * longer one goes to the end of `given`, and the bytes of the older one stay unused. */
static enum value_result keep_text(struct config *cfg, const struct config_key *key,
                                   const char *text)
{
    size_t rows, len = strlen(text) + 1, row = (size_t)(key - config_schema(&rows));
    size_t at = cfg->given_at[row];

    if (!at || strlen(cfg->given + at - 1) + 1 < len) {
        if (len > sizeof(cfg->given) - cfg->given_used)
            return VALUE_RANGE;
        at = cfg->given_used + 1u;
        cfg->given_used = (uint16_t)(cfg->given_used + len);
        cfg->given_at[row] = (uint16_t)at;
    }
    memcpy(cfg->given + at - 1, text, len);
    return VALUE_OK;
}

/* Are these three canonical truth words, "true,false,false"? */
static bool is_bools(const char *s)
{
    int count = 0;

    for (;;) {
        size_t n = strcspn(s, ",");

        if (!(n == 4 && !strncmp(s, "true", n)) && !(n == 5 && !strncmp(s, "false", n)))
            return false;
        count++;
        if (!s[n])
            return count == 3;
        s += n + 1;
    }
}

/* Checks the text by the type of the row, and stores it in the field if there is one.
 * `cfg` may be NULL for a row without a field. */
static enum value_result value_set_field(struct config *cfg,
                                         const struct config_key *key, const char *text)
{
    bool store = key->offset != SIZE_MAX;
    void *field = store ? (char *)cfg + key->offset : NULL;
    size_t len = strlen(text);
    int word;

    /* Words that a row allows besides its type, such as "auto". */
    if (!store && key->type != TYPE_ENUM && word_index(key->values, text) >= 0)
        return VALUE_OK;
    switch (key->type) {
    case TYPE_BOOL:
        word = !strcmp(text, "true") ? 1 : !strcmp(text, "false") ? 0 : -1;
        if (word >= 0 && store)
            *(bool *)field = word == 1;
        return word < 0 ? VALUE_TYPE : VALUE_OK;
    case TYPE_INT:
    case TYPE_NUMBER:
        return set_number(cfg, key, text, store);
    case TYPE_ENUM:
        word = word_index(key->values, text);
        if (word >= 0 && store)
            memcpy(field, &(unsigned){ (unsigned)word }, sizeof(unsigned));
        return word < 0 ? VALUE_TYPE : VALUE_OK;
    case TYPE_BOOLS:
        return is_bools(text) ? VALUE_OK : VALUE_TYPE;
    case TYPE_STRING:
        if ((double)len > key->max)
            return VALUE_RANGE;
        if (store)
            memcpy(field, text, len + 1);
        return VALUE_OK;
    }
    return VALUE_TYPE;
}

/* A row without a field keeps its text, once the check has passed. */
enum value_result value_set(struct config *cfg, const struct config_key *key,
                            const char *text)
{
    enum value_result res = value_set_field(cfg, key, text);

    return res == VALUE_OK && key->offset == SIZE_MAX ? keep_text(cfg, key, text) : res;
}

/* Goes through the canonical text, so that rows with and without a field are one case.
 * A number that was not given has an empty text; its field becomes 0. */
void value_restore(struct config *cfg, const struct config *from, size_t row)
{
    size_t rows;
    const struct config_key *k = &config_schema(&rows)[row];
    char text[CONFIG_GIVEN_BYTES];

    cfg->origin[row] = from->origin[row];
    cfg->line[row] = from->line[row];
    config_value_text(from, k, text, sizeof(text));
    if (k->offset == SIZE_MAX && !from->given_at[row])
        cfg->given_at[row] = 0;
    else if (value_set(cfg, k, text) != VALUE_OK && k->type == TYPE_INT)
        memset((char *)cfg + k->offset, 0, sizeof(int64_t)); /* not given */
}

/* `key` must have no field, hence no config. */
enum value_result value_check(const struct config_key *key, const char *text)
{
    return value_set_field(NULL, key, text);
}

bool config_is_given(const struct config *cfg, const char *name)
{
    int row = config_row(name);

    return row >= 0 && cfg->origin[row] != ORIGIN_DEFAULT;
}

/* Compares whole items of the list: "no" is not in "none|auto". */
bool value_among(const char *list, const char *text)
{
    size_t n = strlen(text);

    if (list && !strcmp(list, "*"))
        return true;
    while (list) {
        const char *bar = strchr(list, '|');
        size_t len = bar ? (size_t)(bar - list) : strlen(list);

        if (len == n && !strncmp(list, text, n))
            return true;
        list = bar ? bar + 1 : NULL;
    }
    return false;
}

/* These two read the canonical text, so they serve rows with and without a field. */
int64_t config_get_int(const struct config *cfg, const char *name)
{
    char text[32];
    int64_t v;

    return parse_int(config_get(cfg, name, text, sizeof(text)), &v) == VALUE_OK ? v : 0;
}

double config_get_number(const struct config *cfg, const char *name)
{
    char text[64];
    double v;

    return parse_number(config_get(cfg, name, text, sizeof(text)), &v) == VALUE_OK ? v
                                                                                   : 0;
}

/* By name: a linear search. Not for inner loops. */
const char *config_get(const struct config *cfg, const char *name, char *buf,
                       size_t len)
{
    size_t n;
    int row = config_row(name);

    buf[0] = '\0';
    if (row >= 0)
        config_value_text(cfg, &config_schema(&n)[row], buf, len);
    return buf;
}

/* No word that is asked for is longer than the buffer. */
bool config_is(const struct config *cfg, const char *name, const char *word)
{
    char text[64];

    return !strcmp(config_get(cfg, name, text, sizeof(text)), word);
}

/* The inverse of value_set_field. */
void config_value_text(const struct config *cfg, const struct config_key *key,
                       char *buf, size_t len)
{
    size_t rows, at;
    const char *field;
    unsigned word;
    int64_t i;
    double d;

    if (key->offset == SIZE_MAX) {
        at = cfg->given_at[key - config_schema(&rows)];
        if (at)
            snprintf(buf, len, "%s", cfg->given + at - 1);
        else
            snprintf(buf, len, "%s", key->default_text ? key->default_text : "");
        return;
    }
    field = (const char *)cfg + key->offset;
    switch (key->type) {
    case TYPE_BOOL:
        snprintf(buf, len, "%s", *(const bool *)field ? "true" : "false");
        break;
    case TYPE_INT:
        memcpy(&i, field, sizeof(i));
        /* 0 cannot be given where the least value is above 0, so it means
         * "not given". */
        if (i == 0 && key->min > 0)
            buf[0] = '\0';
        else
            snprintf(buf, len, "%lld", (long long)i);
        break;
    case TYPE_NUMBER:
        memcpy(&d, field, sizeof(d));
        number_text(d, buf, len);
        break;
    case TYPE_ENUM:
        memcpy(&word, field, sizeof(word));
        snprintf(buf, len, "%s", key->values[word]);
        break;
    case TYPE_STRING:
        snprintf(buf, len, "%s", field);
        break;
    case TYPE_BOOLS: /* has no field */
        break;
    }
}

_Static_assert(sizeof(enum distributed_type) == sizeof(unsigned),
               "enum fields are written as unsigned");
