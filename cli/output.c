/* SPDX-License-Identifier: Apache-2.0
 *
 * The printer of reports: JSON in, a table or JSON out on stdout.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"

int cli_print_json(json_t *json, size_t flags, const char *what)
{
    if (!json)
        return cli_no_memory(what);
    json_dumpf(json, stdout, flags);
    puts("");
    json_decref(json);
    return cli_finish(0);
}

/* "a, 2, c"; what does not fit the buffer is cut. */
static void list_text(json_t *list, char *buf, size_t len)
{
    size_t used = 0, i;
    json_t *v;

    buf[0] = '\0';
    json_array_foreach(list, i, v)
    {
        if (used >= len)
            return;
        if (json_is_string(v))
            used += (size_t)snprintf(buf + used, len - used, "%s%s", i ? ", " : "",
                                     json_string_value(v));
        else
            used += (size_t)snprintf(buf + used, len - used, "%s%lld", i ? ", " : "",
                                     (long long)json_integer_value(v));
    }
}

/* One value as a cell. The unit comes from the name, so that the JSON keeps plain bytes
 * and the table stays readable. */
static void value_text(const char *key, json_t *v, char *buf, size_t len)
{
    size_t n = strlen(key);

    if (json_is_string(v))
        snprintf(buf, len, "%s", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(buf, len, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_integer(v) && n > 6 && !strcmp(key + n - 6, "_bytes"))
        format_bytes((double)json_integer_value(v), buf, len);
    else if (json_is_integer(v))
        snprintf(buf, len, "%lld", (long long)json_integer_value(v));
    else if (json_is_array(v))
        list_text(v, buf, len);
    else
        snprintf(buf, len, "not found");
}

/* Groups only order the JSON; in the table their names would repeat on every line. */
static int print_table(json_t *all)
{
    static const char *const columns[] = { "NAME", "VALUE", NULL };
    struct cli_table *t = cli_table_new("report", columns);
    const char *group, *key;
    json_t *values, *v;

    if (!t)
        return cli_no_memory("the report");
    json_object_foreach(all, group, values)
    {
        json_object_foreach(values, key, v)
        {
            char text[2048];

            value_text(key, v, text, sizeof(text));
            cli_table_row(t, (const char *[]){ key, text });
        }
    }
    return cli_table_print(t, false);
}

int report_print(json_t *all, bool json)
{
    int code;

    if (json || !all)
        return cli_print_json(all, JSON_INDENT(2), "the report");
    code = print_table(all);
    json_decref(all);
    return code;
}
