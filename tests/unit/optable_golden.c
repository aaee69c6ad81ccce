/* SPDX-License-Identifier: Apache-2.0
 *
 * The op table beside PyTorch's results (tests/data/ops/optable.golden, float64
 * arithmetic on the table's float32 inputs). The file holds some elements of every
 * array, not the inputs:
 * those follow from the cases.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/optable.h"

static void print_values(FILE *to, const char *what, const double *v, int64_t n)
{
    fprintf(to, "%s", what);
    for (int64_t i = 0; i < n; i++)
        fprintf(to, " %.17g", v[i]);
    fputc('\n', to);
}

static void dump_case(const struct op_case *c, struct backend *be, FILE *to)
{
    static const char *const kind[] = { "computed", "parameter", "ids", "bytes" };
    struct op_outcome o = { 0 };
    struct op_trial t;

    op_trial_open(&t, c, ACCEL_F32, false);
    if (op_attempt(&t, be, &o)) {
        fprintf(to, "case %s\nop %s\ns", t.what, c->name);
        for (int i = 0; i < 8; i++)
            fprintf(to, " %lld", (long long)c->s[i]);
        fprintf(to, "\nr %.9g %.9g\n", c->r[0], c->r[1]);
        for (int k = 0; k < t.inputs; k++) {
            fprintf(to, "in %s", kind[t.in[k].kind]);
            for (int i = 0; i < t.in[k].ndim; i++)
                fprintf(to, " %lld", (long long)t.in[k].dim[i]);
            print_values(to, "\nv", t.in[k].v, t.in[k].elems);
        }
        print_values(to, "weight", t.weight, o.elems);
        fprintf(to, "end\n");
    }
    op_outcome_free(&o);
    op_trial_close(&t);
}

void optable_dump(struct backend *be, FILE *to)
{
    for (int k = 0; optable[k]; k++)
        for (int i = 0; i < optable[k]->count; i++)
            dump_case(&optable[k]->at[i], be, to);
}

static const struct op_case *find(const char *what)
{
    for (int k = 0; optable[k]; k++)
        for (int i = 0; i < optable[k]->count; i++) {
            struct op_trial t;
            bool same;

            op_trial_open(&t, &optable[k]->at[i], ACCEL_F32, false);
            same = !strcmp(t.what, what);
            op_trial_close(&t);
            if (same)
                return &optable[k]->at[i];
        }
    return NULL;
}

/* "out 24 3 0.5 ..." or "grad1 24 3 ...": elements, stride, largest of all, values. */
static void compare_line(const struct op_trial *t, const struct op_outcome *o,
                         char *line)
{
    char *at = strchr(line, ' ');
    int which = !strncmp(line, "grad", 4) ? atoi(line + 4) : -1;
    const float *all = which < 0 ? o->out : o->grad[which];
    long long elems = strtoll(at, &at, 10), stride = strtoll(at, &at, 10);
    double largest = strtod(at, &at), worst = 0;
    bool fits = elems == (which < 0 ? o->elems : t->in[which].elems);

    for (long long i = 0; fits && i < elems; i += stride) {
        double want = strtod(at, &at);
        double far = fabs(all[i] - want) / (1e-5 * fmax(largest, 1e-3));

        worst = isnan(far) ? INFINITY : fmax(worst, far);
    }
    tap_ok(fits && worst < 1, "%s: %.*s as PyTorch has it, %.2g of what is allowed",
           t->what, (int)strcspn(line, " "), line, worst);
}

void optable_golden(struct backend *be)
{
    const char *src = getenv("ACCEL_SRC");
    struct op_outcome o = { 0 };
    struct op_trial t = { 0 };
    size_t cap = 0;
    char *line = NULL, path[4096];
    bool open = false;
    FILE *from;

    snprintf(path, sizeof(path), "%s/tests/data/ops/optable.golden", src ? src : ".");
    from = fopen(path, "r");
    if (!tap_ok(from != NULL, "%s can be read", path))
        return;
    while (getline(&line, &cap, from) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#')
            continue;
        if (strncmp(line, "case ", 5)) {
            if (open)
                compare_line(&t, &o, line);
            continue;
        }
        op_outcome_free(&o);
        op_trial_close(&t);
        memset(&o, 0, sizeof(o));
        memset(&t, 0, sizeof(t));
        open = tap_ok(find(line + 5) != NULL, "%s is in the table", line + 5);
        if (!open)
            continue;
        op_trial_open(&t, find(line + 5), ACCEL_F32, false);
        open = op_attempt(&t, be, &o);
    }
    op_outcome_free(&o);
    op_trial_close(&t);
    free(line);
    fclose(from);
}
