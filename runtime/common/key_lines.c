/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines "key=value" of the text of a checkpoint: what a key's value is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/key_lines.h"

bool key_line(const char *text, const char *key, char *buf, size_t len)
{
    size_t klen = strlen(key);

    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) : strlen(line);

        if (n > klen && strncmp(line, key, klen) == 0 && line[klen] == '=') {
            snprintf(buf, len, "%.*s", (int)(n - klen - 1), line + klen + 1);
            return true;
        }
        line = end ? end + 1 : NULL;
    }
    return false;
}

bool key_line_i64(const char *text, const char *key, int64_t *value_out)
{
    char value[64], *end;
    long long v;

    if (!key_line(text, key, value, sizeof(value)))
        return false;
    errno = 0;
    v = strtoll(value, &end, 10);
    if (errno || *end || end == value || v < 0)
        return false;
    *value_out = v;
    return true;
}
