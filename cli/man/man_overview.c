/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills accel.7.in: the areas of messages from their tables, the folder of the site's
 * file. Out: man(7) markup on stdout.
 */
#include <stdio.h>

#include "cli/man/areas.h"
#include "cli/man/man_pages.h"
#include "cli/man/roff.h"
#include "cli/man/template.h"

/* A tagged paragraph for each area: "A03xx", what its messages are about, how many. */
static void print_areas(void *arg)
{
    size_t n, pages_count;
    const struct message_area *areas = message_areas(&n);
    const struct message_page *pages = message_pages(&pages_count);

    (void)arg;
    for (size_t i = 0; i < n; i++) {
        char tag[32], text[160];
        int count = 0;

        for (size_t p = 0; p < pages_count; p++)
            count += message_area_of(pages[p].number) == &areas[i];
        snprintf(tag, sizeof(tag), "A%02dxx", areas[i].first / 100);
        snprintf(text, sizeof(text), "%s (%d messages)", areas[i].title, count);
        roff_tag();
        roff_bold(tag);
        roff_tag_end();
        roff_text(text);
        roff_tag_end();
    }
}

static void print_sysconfdir(void *arg)
{
    (void)arg;
    roff_text(SYSCONFDIR);
}

void man_overview(void)
{
    static const struct template_place places[] = {
        { "DATE", roff_date },
        { "VERSION", roff_version },
        { "SYSCONFDIR", print_sysconfdir },
        { "AREAS", print_areas },
        { 0 },
    };

    template_print(template_accel_7, places, roff_markup, NULL);
}
