/* SPDX-License-Identifier: Apache-2.0
 *
 * Places where ranks agree: see agreement_sites.h. The source says where they are, and
 * addr2line where the calls came from.
 */
#include "tests/unit/agreement_sites.h"

#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "tests/tap.h"
#include "tests/unit/lockstep.h"

enum { MOST_SITES = 256 };

#ifdef __SANITIZE_ADDRESS__
static struct site {
    char file[80], text[120];
    int line;
    bool tried;
} site[MOST_SITES];
static int sites;

/* Those that need what two forked ranks without a GPU have not. */
static const struct {
    const char *file, *text, *why;
} untried[] = {
    { "runtime/run/open.c", "run_agree(run, st, err)", "a GPU (2125)" },
    { "runtime/run/run_config.c", "run_agree(run, st, err)",
      "a rank of other settings (test_settings)" },
    { "runtime/run/prepare.c", "fp8_linears_room",
      "8-bit weights of at least 16 columns" },
    { "runtime/state/save/background.c", "background_copied", "a copy on a GPU" },
};

/* Why it is not tried; NULL: it is to be. */
static const char *why_not(const struct site *s)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(untried); i++)
        if (strcmp(untried[i].file, s->file) == 0 && strstr(s->text, untried[i].text))
            return untried[i].why;
    return NULL;
}

/* In: lines of `grep -n`, FILE:LINE:TEXT. */
static void list_sites(void)
{
    static const char grep[] =
        "cd '%s' && grep -rnE --include='*.c' "
        "'(^|[^_[:alnum:]])(run_agree|ckpt_agree)\\(' runtime checkpoint";
    const char *src = getenv("ACCEL_SRC");
    char command[512], line[512];
    FILE *from;

    snprintf(command, sizeof(command), grep, src ? src : ".");
    from = popen(command, "r");
    while (from && sites < MOST_SITES && fgets(line, sizeof(line), from)) {
        struct site *s = &site[sites];
        char *text = strchr(line, ':');

        text = text ? strchr(text + 1, ':') : NULL;
        if (text && strncmp(text + 1, "accel_status_t ", 15) != 0 &&
            sscanf(line, "%79[^:]:%d", s->file, &s->line) == 2) {
            snprintf(s->text, sizeof(s->text), "%s", text);
            sites++;
        }
    }
    tap_ok(from && pclose(from) == 0 && sites > 50 && sites < MOST_SITES,
           "the source has %d agreements", sites);
}

static int base_of(struct dl_phdr_info *info, size_t size, void *to)
{
    (void)size;
    *(uintptr_t *)to = info->dlpi_addr;
    return 1; /* the program is the first */
}

/* The statement may begin above the line that addr2line names, or end below it. */
static bool mark(const char *said)
{
    const char *colon = strrchr(said, ':');
    const int line = colon ? atoi(colon + 1) : 0;
    struct site *best = NULL;

    for (int i = 0; i < sites; i++) {
        const int off = abs(site[i].line - line);

        if (strstr(said, site[i].file) && off <= 2 &&
            (!best || off < abs(best->line - line)))
            best = &site[i];
    }
    if (best)
        best->tried = true;
    else
        tap_diag("no agreement at %s", said);
    return best;
}

static void mark_tried(void)
{
    const void *at[LOCKSTEP_SITES];
    const int n = lockstep_sites(at);
    char command[64 + 20 * LOCKSTEP_SITES], line[512];
    uintptr_t base = 0;
    int found = 0;
    FILE *from;

    dl_iterate_phdr(base_of, &base);
    snprintf(command, sizeof(command), "addr2line -e /proc/%d/exe", (int)getpid());
    for (int i = 0; i < n; i++)
        snprintf(command + strlen(command), sizeof(command) - strlen(command), " 0x%lx",
                 (unsigned long)((uintptr_t)at[i] - base - 1));
    from = popen(command, "r");
    while (from && fgets(line, sizeof(line), from)) {
        line[strcspn(line, " \n")] = '\0';
        found += mark(line);
    }
    tap_ok(from && pclose(from) == 0 && n > 0 && found == n, "%d calls of them", n);
}

void agreement_sites_check(void)
{
    list_sites();
    mark_tried();
    for (int i = 0; i < sites; i++) {
        const char *why = why_not(&site[i]);

        if (why)
            tap_ok(!site[i].tried, "%s:%d needs %s", site[i].file, site[i].line, why);
        else
            tap_ok(site[i].tried, "%s:%d was failed at", site[i].file, site[i].line);
    }
}
#else
void agreement_sites_check(void)
{
    tap_skip(1, "calls are jumps without -fno-optimize-sibling-calls");
}
#endif
