/* SPDX-License-Identifier: Apache-2.0
 *
 * Schema table in, JSON Schema draft-07 out. It describes the file after a YAML reader:
 * an unquoted NO is false there, and a key with null, "", [] or {} counts as not given.
 * Rules between keys stay with `accel check`. Prints nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scripts/accel/json_schema.h"

#define NOT_GIVEN "#/definitions/not_given"

/* A failed allocation anywhere makes jansson's setters return -1: kept until the end. */
struct builder {
    bool failed;
};

static void put(struct builder *b, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value))
        b->failed = true;
}

static void append(struct builder *b, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value))
        b->failed = true;
}

void config_key_path(const struct config_key *key, char *buf, size_t len)
{
    snprintf(buf, len, "%s%s%s", key->section, key->section[0] ? "." : "", key->name);
}

size_t config_key_prefix(const struct config_key *key)
{
    static const char suffix[] = "config";
    size_t n = strlen(key->section), skip = strlen(suffix);

    /* parallelism_config.parallelism_config_tp_size, fsdp_config.fsdp_version */
    if (n && !strncmp(key->name, key->section, n) && key->name[n] == '_')
        return n + 1;
    if (n > skip && !strcmp(key->section + n - skip, suffix) &&
        !strncmp(key->name, key->section, n - skip))
        return n - skip;
    return 0;
}

/* `text` (n bytes) as the JSON value that a YAML reader makes of it for this type. */
static json_t *typed(const struct config_key *k, const char *text, size_t n)
{
    char word[256];

    snprintf(word, sizeof(word), "%.*s", (int)n, text);
    switch (k->type) {
    case TYPE_BOOL:
        return json_boolean(!strcmp(word, "true"));
    case TYPE_INT:
        return json_integer(strtoll(word, NULL, 10));
    case TYPE_NUMBER:
        return json_real(strtod(word, NULL));
    default:
        return json_string(word);
    }
}

static bool is_no(const char *word)
{
    return !strcmp(word, "NO") || !strcmp(word, "no");
}

/* Accelerate writes the strategy as a word or as PyTorch's number. */
static void append_numbers(struct builder *b, json_t *list, const struct config_key *k)
{
    static const struct {
        const char *word, *text;
        int number;
    } numbers[] = { { "FULL_SHARD", "1", 1 }, { "NO_SHARD", "3", 3 } };

    if (k->offset != offsetof(struct config, sharding_strategy))
        return;
    for (int i = 0; k->values[i]; i++)
        for (size_t j = 0; j < ACCEL_ARRAY_SIZE(numbers); j++)
            if (!strcmp(k->values[i], numbers[j].word)) {
                append(b, list, json_integer(numbers[j].number));
                append(b, list, json_string(numbers[j].text));
            }
}

/* {"enum": [...]} of the words of an honoured key, or of the values that a fixed key may
 * have. */
static json_t *one_of_words(struct builder *b, const struct config_key *k)
{
    json_t *list = json_array();
    bool no = false;

    if (k->offset != SIZE_MAX) {
        for (int i = 0; k->values[i]; i++) {
            append(b, list, json_string(k->values[i]));
            no |= is_no(k->values[i]);
        }
        append_numbers(b, list, k);
    } else {
        for (const char *p = k->fixed; p;
             p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
            size_t n = strcspn(p, "|");

            append(b, list, typed(k, p, n));
            no |= n == 2 && (!strncmp(p, "NO", n) || !strncmp(p, "no", n));
        }
    }
    if (no && k->type != TYPE_BOOL)
        append(b, list, json_false());
    return json_pack("{s:o}", "enum", list);
}

/* What the key may hold, each way one entry of anyOf. */
static void append_values(struct builder *b, json_t *any, const struct config_key *k)
{
    json_t *text;

    if (k->offset == SIZE_MAX && !k->fixed)
        return;
    if (k->offset == SIZE_MAX || k->type == TYPE_ENUM) {
        append(b, any, one_of_words(b, k));
        return;
    }
    switch (k->type) {
    case TYPE_BOOL:
        append(b, any, json_pack("{s:s}", "type", "boolean"));
        return;
    case TYPE_INT:
        append(b, any,
               json_pack("{s:s,s:I,s:I}", "type", "integer", "minimum",
                         (json_int_t)k->min, "maximum", (json_int_t)k->max));
        if (k->offset == offsetof(struct config, num_processes))
            append(b, any, json_pack("{s:i}", "const", -1)); /* "not given" */
        return;
    case TYPE_NUMBER:
        append(b, any,
               json_pack("{s:s,s:f,s:f}", "type", "number", "minimum", k->min,
                         "maximum", k->max));
        return;
    default:
        /* ~ and $ are not expanded in a path, so they are refused there. */
        text = json_pack("{s:s,s:I,s:s}", "type", "string", "maxLength",
                         (json_int_t)k->max, "pattern",
                         k->offset == offsetof(struct config, ckpt_dir)
                             ? "^(?!~)[^$\\u0000-\\u001f\\u007f]*$"
                             : "^[^\\u0000-\\u001f\\u007f]*$");
        append(b, any, text);
        /* An unquoted text that looks like something else. */
        append(b, any, json_pack("{s:[s,s]}", "type", "number", "boolean"));
    }
}

/* The one line of help, and what is known but refused. */
static json_t *description(const struct config_key *k)
{
    struct strbuf text = { 0 };
    json_t *json;

    if (k->offset == SIZE_MAX)
        strbuf_printf(&text, k->fixed ? "Only %s: %s" : "Not supported yet%s: %s",
                      k->fixed ? k->fixed : "", k->help);
    else
        strbuf_printf(&text, "%s", k->help);
    for (int i = 0; k->refused && k->refused[i]; i++)
        strbuf_printf(&text, "%s%s", i ? ", " : ". Not supported yet: ", k->refused[i]);
    json = text.failed ? NULL : json_string(text.s);
    strbuf_free(&text);
    return json;
}

static json_t *key_schema(struct builder *b, const struct config_key *k)
{
    json_t *any = json_array();
    json_t *schema = json_object();

    put(b, schema, "description", description(k));
    if (k->default_text && k->default_text[0])
        put(b, schema, "default", typed(k, k->default_text, strlen(k->default_text)));
    append_values(b, any, k);
    if (k->offset != offsetof(struct config, distributed_type))
        append(b, any, json_pack("{s:s}", "$ref", NOT_GIVEN));
    put(b, schema, "anyOf", any);
    return schema;
}

json_t *json_schema_key(const struct config_key *key)
{
    struct builder b = { 0 };
    json_t *schema = key_schema(&b, key);

    if (!b.failed)
        return schema;
    json_decref(schema);
    return NULL;
}

/* An object that takes the keys in `properties` and no others. */
static json_t *map_schema(struct builder *b, json_t *properties)
{
    json_t *map = json_object();

    put(b, map, "additionalProperties", json_false());
    put(b, map, "properties", properties);
    return map;
}

/* The properties of the map at `section` ("a.b"); maps on the way are made. */
static json_t *section_properties(struct builder *b, json_t *root, const char *section)
{
    json_t *properties = json_object_get(root, "properties"), *map, *any;
    char name[64];

    while (*section) {
        size_t n = strcspn(section, ".");

        snprintf(name, sizeof(name), "%.*s", (int)n, section);
        any = json_object_get(json_object_get(properties, name), "anyOf");
        if (!any) {
            map = map_schema(b, json_object());
            put(b, map, "type", json_string("object"));
            put(b, properties, name,
                json_pack("{s:[o,{s:s}]}", "anyOf", map, "$ref", NOT_GIVEN));
            any = json_object_get(json_object_get(properties, name), "anyOf");
        }
        properties = json_object_get(json_array_get(any, 0), "properties");
        section += n + (section[n] == '.');
    }
    return properties;
}

/* Inside its map a key may be written without the map's prefix. */
static void add_short_name(struct builder *b, json_t *properties,
                           const struct config_key *k)
{
    size_t skip = config_key_prefix(k);
    char ref[256];

    if (!skip)
        return;
    snprintf(ref, sizeof(ref), "#/properties/%s/anyOf/0/properties/%s", k->section,
             k->name);
    put(b, properties, k->name + skip, json_pack("{s:s}", "$ref", ref));
}

json_t *json_schema_file(void)
{
    struct builder b = { 0 };
    json_t *root = map_schema(&b, json_object());
    size_t n;
    const struct config_key *k = config_schema(&n);

    put(&b, root, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    put(&b, root, "title", json_string("Accelerate config file as accel reads it"));
    put(&b, root, "type", json_string("object"));
    put(&b, root, "required", json_pack("[s]", "distributed_type"));
    put(&b, root, "definitions",
        json_pack("{s:{s:s,s:[n,s,[],{}]}}", "not_given", "description", "not given",
                  "enum", ""));
    for (size_t i = 0; i < n; i++) {
        json_t *properties = section_properties(&b, root, k[i].section);

        put(&b, properties, k[i].name, key_schema(&b, &k[i]));
        add_short_name(&b, properties, &k[i]);
    }
    if (!b.failed)
        return root;
    json_decref(root);
    return NULL;
}
