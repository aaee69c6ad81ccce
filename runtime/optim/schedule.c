/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate as a pure function of settings and position, in double. Sources:
 * transformers.optimization, get_constant_schedule to get_inverse_sqrt_schedule, and
 * torch.optim.lr_scheduler.OneCycleLR (Smith and Topin 2017).
 */
#include "optim/schedule.h"

#include <inttypes.h>
#include <math.h>

static const double pi = 3.14159265358979323846;

const char *schedule_name(accel_schedule_kind_t kind)
{
    static const char *const names[] = {
        "constant",  "linear",       "cosine",  "restarts", "polynomial",
        "one-cycle", "inverse-sqrt", "plateau", "own",
    };

    return names[kind];
}

/* Of the fields that only some kinds have, those of this one. */
static void shape_settings(const accel_schedule_t *s, char *buf, size_t len)
{
    const accel_plateau_t *p = &s->plateau;

    if (s->kind == ACCEL_SCHEDULE_COSINE || s->kind == ACCEL_SCHEDULE_RESTARTS)
        text_format(buf, len, " cycles %.9g", s->cycles);
    else if (s->kind == ACCEL_SCHEDULE_POLYNOMIAL)
        text_format(buf, len, " power %.9g", s->power);
    else if (s->kind == ACCEL_SCHEDULE_ONE_CYCLE)
        text_format(buf, len, " div %.9g final_div %.9g", s->div, s->final_div);
    else if (s->kind == ACCEL_SCHEDULE_INVERSE_SQRT)
        text_format(buf, len, " timescale %.9g", s->timescale);
    else if (s->kind == ACCEL_SCHEDULE_PLATEAU)
        text_format(buf, len,
                    " maximize %d factor %.9g patience %" PRId64
                    " threshold %.9g absolute %d cooldown %" PRId64,
                    p->maximize != 0, p->factor, p->patience, p->threshold,
                    p->absolute != 0, p->cooldown);
}

void schedule_settings(const accel_schedule_t *s, char text_out[SCHEDULE_SETTINGS])
{
    static const char *const by[] = { "steps", "ranks", "calls" };
    const int used = text_format(
        text_out, SCHEDULE_SETTINGS,
        "%s steps %" PRId64 " warmup %" PRId64 " first %d end %.9g by %s",
        schedule_name(s->kind), s->steps, s->warmup, s->first, s->end, by[s->move]);

    shape_settings(s, text_out + used, SCHEDULE_SETTINGS - (size_t)used);
}

static double unless_zero(double value, double standard)
{
    return value == 0 ? standard : value;
}

accel_schedule_t schedule_defaults(accel_schedule_t s)
{
    s.cycles = unless_zero(s.cycles, s.kind == ACCEL_SCHEDULE_COSINE ? 0.5 : 1);
    s.power = unless_zero(s.power, 1);
    s.timescale = unless_zero(s.timescale, s.warmup > 0 ? (double)s.warmup : 10000);
    s.div = unless_zero(s.div, 25);
    s.final_div = unless_zero(s.final_div, 1e4);
    s.plateau.factor = unless_zero(s.plateau.factor, 0.1);
    s.plateau.threshold = unless_zero(s.plateau.threshold, 1e-4);
    if (s.plateau.patience == 0)
        s.plateau.patience = 10;
    return s;
}

static accel_status_t schedule_refuse(accel_error_t *err, const char *what)
{
    return accel_fail(err, A0980, "see struct accel_schedule in accel_objects.h", "%s",
                      what);
}

/* False for NaN and infinity, too. */
static bool finite_from(double x, double low)
{
    return x >= low && !isinf(x);
}

static accel_status_t check_plateau(const accel_plateau_t *p, accel_error_t *err)
{
    if (!(p->factor >= 0 && p->factor < 1))
        return schedule_refuse(err, "plateau.factor must be above 0 and below 1");
    if (!finite_from(p->threshold, -HUGE_VAL))
        return schedule_refuse(err, "plateau.threshold must be finite");
    if (p->cooldown < 0)
        return schedule_refuse(err, "plateau.cooldown must not be negative");
    return ACCEL_OK;
}

/* The comparisons are written so that NaN does not pass. */
accel_status_t schedule_check(const accel_schedule_t *s, accel_error_t *err)
{
    if ((int)s->kind < ACCEL_SCHEDULE_CONSTANT || s->kind > ACCEL_SCHEDULE_OWN)
        return schedule_refuse(err, "the kind of schedule is not one of those listed");
    if ((int)s->move < ACCEL_MOVE_BY_STEPS || s->move > ACCEL_MOVE_BY_CALLS)
        return schedule_refuse(err, "move must be BY_STEPS, BY_RANKS or BY_CALLS");
    if (s->steps < 0 || s->warmup < 0 || s->first < 0)
        return schedule_refuse(err, "steps, warmup and first must not be negative");
    /* kinds whose shape depends on where they end */
    if (s->kind >= ACCEL_SCHEDULE_LINEAR && s->kind <= ACCEL_SCHEDULE_ONE_CYCLE &&
        s->steps < 1)
        return accel_fail(err, A0980, "set steps to the length of the whole schedule",
                          "a schedule of kind %s needs its number of steps",
                          schedule_name(s->kind));
    if (s->kind == ACCEL_SCHEDULE_ONE_CYCLE && s->warmup > s->steps)
        return schedule_refuse(err, "the rise of one cycle is longer than its steps");
    if (!(s->end >= 0 && s->end <= 1))
        return schedule_refuse(err, "end, a share of lr, must be from 0 to 1");
    if (!finite_from(s->cycles, 0) || !finite_from(s->power, 0) ||
        !finite_from(s->timescale, 0))
        return schedule_refuse(err, "cycles, power and timescale must be finite and "
                                    "not negative");
    if ((s->div != 0 && !finite_from(s->div, 1)) ||
        (s->final_div != 0 && !finite_from(s->final_div, 1)))
        return schedule_refuse(err, "div and final_div must be finite and at least 1");
    if (s->kind == ACCEL_SCHEDULE_OWN && !s->own)
        return schedule_refuse(err, "an own schedule needs its function");
    return check_plateau(&s->plateau, err);
}

accel_schedule_t schedule_of_job(int64_t warmup, int64_t steps)
{
    return schedule_defaults((accel_schedule_t){ .kind = ACCEL_SCHEDULE_COSINE,
                                                 .steps = steps,
                                                 .warmup = warmup,
                                                 .first = 1,
                                                 .end = 0.1 });
}

/* Half a cosine from `from` to `to`, x in [0, 1]. */
static double cosine_between(double from, double to, double x)
{
    return to + (from - to) / 2 * (1 + cos(pi * x));
}

/* torch's two phases end at u - 1, which need not be a whole number, and at steps - 1.
 */
static double one_cycle_rate(const accel_schedule_t *s, double lr, int64_t position)
{
    const double last = (double)s->steps - 1;
    const double top =
        s->warmup > 0 ? (double)s->warmup - 1 : 0.3 * (double)s->steps - 1;
    const double p = fmin((double)position, last), low = lr / s->div;

    if (top > 0 && p <= top)
        return cosine_between(low, lr, p / top);
    if (last <= top)
        return lr;
    return cosine_between(lr, low / s->final_div, (p - top) / (last - top));
}

/* What is left of the way from the end to lr: 1 at the end of the warm-up. x: the share
 * of the way that is gone, 0 .. 1. `past`: positions since the warm-up. */
static double schedule_shape(const accel_schedule_t *s, double x, double past)
{
    switch (s->kind) {
    case ACCEL_SCHEDULE_LINEAR:
        return 1 - x;
    case ACCEL_SCHEDULE_COSINE:
        return 0.5 * (1 + cos(pi * (s->cycles * 2) * x));
    case ACCEL_SCHEDULE_RESTARTS:
        return x >= 1 ? 0 : 0.5 * (1 + cos(pi * fmod(s->cycles * x, 1)));
    case ACCEL_SCHEDULE_POLYNOMIAL:
        return pow(1 - x, s->power);
    case ACCEL_SCHEDULE_INVERSE_SQRT:
        return 1 / sqrt((past + s->timescale) / s->timescale);
    default:
        return 1;
    }
}

double schedule_rate(const accel_schedule_t *s, double lr, int64_t position)
{
    const int64_t p = (position < 0 ? 0 : position) + s->first;
    const int64_t left = s->steps > s->warmup ? s->steps - s->warmup : 1;
    const double end = lr * s->end, past = (double)(p - s->warmup);

    if (s->kind == ACCEL_SCHEDULE_ONE_CYCLE)
        return one_cycle_rate(s, lr, p);
    if (p < s->warmup)
        return lr * ((double)p / (double)s->warmup);
    if (s->kind == ACCEL_SCHEDULE_OWN) {
        const double factor = s->own(s->user, p);

        return finite_from(factor, 0) ? lr * factor : NAN;
    }
    if (s->kind == ACCEL_SCHEDULE_CONSTANT || s->kind == ACCEL_SCHEDULE_PLATEAU)
        return lr;
    return end + (lr - end) * schedule_shape(s, fmin(past / (double)left, 1), past);
}
