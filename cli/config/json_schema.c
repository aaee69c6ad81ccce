/* SPDX-License-Identifier: Apache-2.0
 *
 * Schema table in, JSON Schema draft-07 out. It describes the file as a YAML reader
 * delivers it: an unquoted NO is false there, and a key with null, "", [] or {} counts
 * as not given. Rules between keys stay with `accel check`. Prints nothing.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config/json_schema.h"

/* Values that mean "not given"; every key but distributed_type takes them. */
#define NOT_GIVEN "#/definitions/not_given"

/* A failed allocation anywhere makes jansson's setters return -1. It is kept until the
 * end, so that building reads as one sequence. */
struct builder {
    bool failed;
};

/* object[key] = value; takes over `value`, also when it fails. */
static void put_member(struct builder *b, json_t *object, const char *key,
                       json_t *value)
{
    if (json_object_set_new(object, key, value))
        b->failed = true;
}

/* Appends `value` and takes it over, also when it fails. */
static void append_item(struct builder *b, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value))
        b->failed = true;
}

/* text[n] as the JSON value that a YAML reader makes of it for this type. */
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

/* Words that a YAML 1.1 reader turns into false when they are not quoted. */
static bool is_no(const char *word)
{
    return !strcmp(word, "NO") || !strcmp(word, "no");
}

/* A word that, without quotes, is a truth value. */
static bool is_truth(const char *word)
{
    return !strcmp(word, "true") || !strcmp(word, "false");
}

/* Accelerate takes a word or PyTorch's number for some keys; old files quote
 * numbers. */
static void append_numbers(struct builder *b, json_t *list, const struct config_key *k)
{
    const int last = k->offset == offsetof(struct config, sharding_strategy)   ? 5
                     : k->offset == offsetof(struct config, backward_prefetch) ? 2
                     : !strcmp(k->name, "fsdp_state_dict_type")                ? 3
                                                                               : 0;

    for (int i = 1; i <= last; i++) {
        const char text[2] = { (char)('0' + i), '\0' };

        append_item(b, list, json_integer(i));
        append_item(b, list, json_string(text));
    }
    /* PyTorch's enum has the name with an underscore in front. */
    if (last == 5)
        append_item(b, list, json_string("_HYBRID_SHARD_ZERO2"));
}

/* Text that is one of the words in any case. */
static void append_any_case(struct builder *b, json_t *any, const char *const *words)
{
    struct strbuf s = { 0 };

    for (int i = 0; words[i]; i++) {
        strbuf_printf(&s, "%s", i ? "|" : "^(");
        for (const char *p = words[i]; *p; p++)
            if (isalpha((unsigned char)*p))
                strbuf_printf(&s, "[%c%c]", toupper((unsigned char)*p),
                              tolower((unsigned char)*p));
            else
                strbuf_append(&s, p, 1);
    }
    strbuf_printf(&s, ")$");
    append_item(b, any,
                s.failed ? NULL
                         : json_pack("{s:s,s:s}", "type", "string", "pattern", s.s));
    strbuf_free(&s);
}

/* A truth value, or one of the words and numbers that Accelerate takes for one. */
static void append_truth(struct builder *b, json_t *any)
{
    static const char *const words[] = { "true", "yes", "on", "y", "t", "1", "false",
                                         "no",   "off", "n",  "f", "0", NULL };

    append_item(b, any, json_pack("{s:s}", "type", "boolean"));
    append_item(b, any, json_pack("{s:[i,i]}", "enum", 0, 1));
    append_any_case(b, any, words);
}

/* Text of that form. */
static void append_pattern(struct builder *b, json_t *any, const char *pattern)
{
    append_item(b, any, json_pack("{s:s,s:s}", "type", "string", "pattern", pattern));
}

/* {"enum": [...]} of the words of a key, or of the values that a refused key may
 * still have. Where one of them is NO, false is accepted: that is what an
 * unquoted NO becomes. */
static json_t *one_of_words(struct builder *b, const struct config_key *k)
{
    json_t *list = json_array();
    bool no = false;

    for (int i = 0; k->use != USE_REFUSED && k->values[i]; i++) {
        append_item(b, list, json_string(k->values[i]));
        if (is_truth(k->values[i]))
            append_item(b, list, json_boolean(k->values[i][0] == 't'));
        no |= is_no(k->values[i]);
    }
    /* `ours` of a refused key: "a|b", the values that change nothing. */
    for (const char *p = k->use == USE_REFUSED ? k->ours : NULL; p;
         p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        size_t n = strcspn(p, "|");

        append_item(b, list, typed(k, p, n));
        no |= n == 2 && (!strncmp(p, "NO", n) || !strncmp(p, "no", n));
    }
    append_numbers(b, list, k);
    if (no && k->type != TYPE_BOOL)
        append_item(b, list, json_false());
    return json_pack("{s:o}", "enum", list);
}

/* Three truth values: a list, or Python's way to print them. */
static void append_bools(struct builder *b, json_t *any)
{
    append_item(b, any,
                json_pack("{s:s,s:{s:s},s:i,s:i}", "type", "array", "items", "type",
                          "boolean", "minItems", 3, "maxItems", 3));
    append_pattern(b, any, "^\\(?([Tt]rue|[Ff]alse)(, *([Tt]rue|[Ff]alse)){2}\\)?$");
}

static void append_text(struct builder *b, json_t *any, const struct config_key *k)
{
    /* ~ and $ are not expanded in a path, so they are refused there. */
    append_item(b, any,
                json_pack("{s:s,s:I,s:s}", "type", "string", "maxLength",
                          (json_int_t)k->max, "pattern",
                          k->offset == offsetof(struct config, ckpt_dir)
                              ? "^(?!~)[^$\\u0000-\\u001f\\u007f]*$"
                              : "^[^\\u0000-\\u001f\\u007f]*$"));
    /* Unquoted text that looks like a number or a boolean, such as a version. */
    append_item(b, any, json_pack("{s:[s,s]}", "type", "number", "boolean"));
}

/* Appends what the key may hold to `any`, one entry of anyOf per form. */
static void append_values(struct builder *b, json_t *any, const struct config_key *k)
{
    if (k->use == USE_REFUSED ? k->ours != NULL : k->values != NULL)
        append_item(b, any, one_of_words(b, k));
    if (k->use == USE_REFUSED)
        return;
    /* Of what nothing reads, a list or a map is as good. */
    if (k->use == USE_NO_EFFECT)
        append_item(b, any, json_pack("{s:[s,s]}", "type", "array", "object"));
    switch (k->type) {
    case TYPE_BOOL:
        append_truth(b, any);
        break;
    case TYPE_INT:
        append_item(b, any,
                    json_pack("{s:s,s:I,s:I}", "type", "integer", "minimum",
                              (json_int_t)k->min, "maximum", (json_int_t)k->max));
        /* A number between quotes is the number. */
        append_pattern(b, any, "^[+-]?[0-9_]+$");
        /* -1 stands for "not given" here, as in Accelerate. */
        if (k->offset == offsetof(struct config, num_processes))
            append_item(b, any, json_pack("{s:i}", "const", -1));
        break;
    case TYPE_NUMBER:
        append_item(b, any,
                    json_pack("{s:s,s:f,s:f}", "type", "number", "minimum", k->min,
                              "maximum", k->max));
        append_pattern(b, any, "^[+-]?[0-9._]+([eE][+-]?[0-9]+)?$");
        break;
    case TYPE_BOOLS:
        append_bools(b, any);
        break;
    case TYPE_STRING:
        append_text(b, any, k);
        break;
    case TYPE_ENUM:
        append_any_case(b, any, k->values);
        for (int i = 0; k->values[i]; i++)
            if (!strcmp(k->values[i], "true") || !strcmp(k->values[i], "yes"))
                append_truth(b, any);
        break;
    }
}

/* The key's line of help, and what is done with the key. */
static json_t *description(const struct config_key *k)
{
    static const char *const uses[] = { [USE_HONOURED] = "",
                                        [USE_HANDED_ON] = "",
                                        [USE_REPLACED] = "Replaced: ",
                                        [USE_NO_EFFECT] = "No effect: ",
                                        [USE_REFUSED] = "Refused: " };
    struct strbuf text = { 0 };
    json_t *json;

    /* "Replaced" and its like stand first: editors show the beginning. */
    strbuf_printf(&text, "%s%s", uses[k->use], k->help);
    for (int i = 0; k->refused && k->refused[i]; i++)
        strbuf_printf(&text, "%s%s", i ? ", " : ". Refused: ", k->refused[i]);
    json = text.failed ? NULL : json_string(text.s);
    strbuf_free(&text);
    return json;
}

/* The default as a value of the key's type, or NULL. */
static json_t *default_value(const struct config_key *k)
{
    if (!k->default_text || !k->default_text[0])
        return NULL;
    /* The one default of this type is three times false. */
    if (k->type == TYPE_BOOLS)
        return json_pack("[b,b,b]", 0, 0, 0);
    return typed(k, k->default_text, strlen(k->default_text));
}

/* Description, default and all accepted forms of one key. */
static json_t *key_schema(struct builder *b, const struct config_key *k)
{
    json_t *any = json_array();
    json_t *schema = json_object(), *otherwise = default_value(k);

    put_member(b, schema, "description", description(k));
    if (otherwise)
        put_member(b, schema, "default", otherwise);
    append_values(b, any, k);
    /* distributed_type alone must be given. */
    if (k->offset != offsetof(struct config, distributed_type))
        append_item(b, any, json_pack("{s:s}", "$ref", NOT_GIVEN));
    put_member(b, schema, "anyOf", any);
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

    put_member(b, map, "additionalProperties", json_false());
    put_member(b, map, "properties", properties);
    return map;
}

/* The properties of the map at `section` ("a.b"). Maps on the way are made when
 * missing; each may also be "not given", so its schema lies in anyOf[0]. */
static json_t *section_properties(struct builder *b, json_t *root, const char *section)
{
    json_t *properties = json_object_get(root, "properties"), *map, *any;
    char name[64];

    while (*section) {
        size_t n = strcspn(section, ".");

        snprintf(name, sizeof(name), "%.*s", (int)n, section);
        any = json_object_get(json_object_get(properties, name), "anyOf");
        /* The map's first key makes it; the later ones find it here. */
        if (!any) {
            map = map_schema(b, json_object());
            put_member(b, map, "type", json_string("object"));
            put_member(b, properties, name,
                       json_pack("{s:[o,{s:s}]}", "anyOf", map, "$ref", NOT_GIVEN));
            any = json_object_get(json_object_get(properties, name), "anyOf");
        }
        properties = json_object_get(json_array_get(any, 0), "properties");
        section += n + (section[n] == '.');
    }
    return properties;
}

/* Lets `name` stand for the key as well. */
static void add_name(struct builder *b, json_t *properties, const struct config_key *k,
                     const char *name)
{
    char ref[256];

    snprintf(ref, sizeof(ref), "#/properties/%s/anyOf/0/properties/%s", k->section,
             k->name);
    put_member(b, properties, name, json_pack("{s:s}", "$ref", ref));
}

/* Inside its map a key may be written without the map's prefix, and so
 * may its other name. */
static void add_other_names(struct builder *b, json_t *properties,
                            const struct config_key *k)
{
    size_t skip = config_key_prefix(k);

    if (skip)
        add_name(b, properties, k, k->name + skip);
    if (!k->other_name)
        return;
    add_name(b, properties, k, k->other_name);
    if (skip)
        add_name(b, properties, k, k->other_name + skip);
}

/* Every key stands in the map of its section; other names for it are references, so
 * that its values are written once. */
json_t *json_schema_file(void)
{
    struct builder b = { 0 };
    json_t *root = map_schema(&b, json_object());
    size_t n;
    const struct config_key *k = config_schema(&n);

    put_member(&b, root, "$schema",
               json_string("http://json-schema.org/draft-07/schema#"));
    put_member(&b, root, "title",
               json_string("Accelerate config file as accel reads it"));
    put_member(&b, root, "type", json_string("object"));
    put_member(&b, root, "required", json_pack("[s]", "distributed_type"));
    put_member(&b, root, "definitions",
               json_pack("{s:{s:s,s:[n,s,[],{}]}}", "not_given", "description",
                         "not given", "enum", ""));
    /* In the order of the table, which is the order editors offer. */
    for (size_t i = 0; i < n; i++) {
        json_t *properties = section_properties(&b, root, k[i].section);

        put_member(&b, properties, k[i].name, key_schema(&b, &k[i]));
        add_other_names(&b, properties, &k[i]);
    }
    /* Half a schema would refuse good files: none is better. */
    if (!b.failed)
        return root;
    json_decref(root);
    return NULL;
}
