/* SPDX-License-Identifier: Apache-2.0
 *
 * $ACCEL_PREEMPTION: the rules of accel.preemption as words, because this library has
 * no reader of configs. In: "signal=USR1 lead_seconds=120 max_restarts=100
 * requeue=true", or "enabled=false". Out: the rules.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"
#include "job/attempt.h"

/* The largest values that the config allows (config/keys_accel.def). */
#define LEAD_SECONDS_MOST 65535
#define MAX_RESTARTS_MOST 1000000

/* The value of `name` ("requeue=") in the words of `text`; NULL: there is none. */
static const char *value_of(const char *text, const char *name)
{
    for (const char *at = text; (at = strstr(at, name)); at++)
        if (at == text || at[-1] == ' ')
            return at + strlen(name);
    return NULL;
}

static bool is_word(const char *value, const char *word)
{
    return value && strncmp(value, word, strlen(word)) == 0 &&
           (value[strlen(word)] == ' ' || !value[strlen(word)]);
}

/* A number from 0 to `most`; anything else counts as not given. */
static int64_t number(const char *value, int64_t most, int64_t otherwise)
{
    char *end;
    long long n;

    if (!value || *value < '0' || *value > '9')
        return otherwise;
    n = strtoll(value, &end, 10);
    return n <= most && (*end == ' ' || !*end) ? n : otherwise;
}

struct preemption_rules attempt_rules(void)
{
    const char *text = getenv(ENV_PREEMPTION);

    text = text ? text : "";
    return (struct preemption_rules){
        .enabled = !is_word(value_of(text, "enabled="), "false"),
        .requeue = !is_word(value_of(text, "requeue="), "false"),
        .warning = is_word(value_of(text, "signal="), "USR2") ? SIGUSR2 : SIGUSR1,
        .lead_seconds = number(value_of(text, "lead_seconds="), LEAD_SECONDS_MOST, 120),
        .max_restarts = number(value_of(text, "max_restarts="), MAX_RESTARTS_MOST, 100),
    };
}
