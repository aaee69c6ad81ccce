/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills a template: walks its text and calls what prints at each named place. Knows
 * neither markup nor shell; output errors are left to cli_finish.
 */
#include <stdbool.h>
#include <string.h>

#include "cli/man/template.h"

/* The row of the place that `text` begins with; *length_out: bytes of "@NAME@". NULL:
 * the sign is a part of the text, as in "$@". */
static const struct template_place *find_place(const char *text,
                                               const struct template_place *places,
                                               size_t *length_out)
{
    size_t n = strspn(text + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");

    if (text[1 + n] != '@')
        return NULL;
    for (; places->name; places++)
        if (strlen(places->name) == n && !memcmp(places->name, text + 1, n)) {
            *length_out = n + 2;
            return places;
        }
    return NULL;
}

void template_print(const char *text, const struct template_place *places,
                    void (*write)(const char *text, size_t n), void *arg)
{
    const char *begin = text, *unwritten = text;

    while ((text = strchr(text, '@')) != NULL) {
        size_t n;
        const struct template_place *place = find_place(text, places, &n);
        bool line_begins = text == begin || text[-1] == '\n';

        if (!place) {
            text++;
            continue;
        }
        write(unwritten, (size_t)(text - unwritten));
        place->print(arg);
        text += n;
        /* Whole lines have their own ends. */
        text += line_begins && *text == '\n';
        unwritten = text;
    }
    write(unwritten, strlen(unwritten));
}
