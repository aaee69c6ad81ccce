// SPDX-License-Identifier: Apache-2.0
//
// byo.cpp: the network of byo.c in C++, feeding itself: no dataset, sample numbers from the
// run. Shows that accel.h is a C++ header too, and how to wrap a unit in an object.
//     ACCEL_MIXED_PRECISION=no srun -n 2 --accel-config=fsdp.yaml ./byo_cpp [OUT [STEPS]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <accel.h>

namespace {

constexpr int in = 2, hidden = 48, batch = 16;

// The library's error as an exception: its text, and the status that becomes the exit code.
struct failure : std::runtime_error {
    explicit failure(const accel_error_t &e)
        : std::runtime_error(e.text[0] ? std::string(e.text) + ": " + e.hint : ""), code(e.code)
    {
    }
    accel_status_t code;
};

// Runs one call of the library and turns a bad status into an exception.
template <class F> void check(F &&call)
{
    accel_error_t err{};
    if (call(&err) != ACCEL_OK)
        throw failure(err);
}

// A unit's values are gathered for as long as an object of this class lives, also when an
// exception ends the scope. A copy would release the unit twice.
class wanted {
public:
    explicit wanted(accel_unit_t *u) : unit(u)
    {
        check([&](accel_error_t *e) { return accel_unit_want(unit, e); });
    }
    ~wanted() { accel_unit_done(unit); }
    wanted(const wanted &) = delete;
    wanted &operator=(const wanted &) = delete;
    const float *operator[](int i) const
    {
        return static_cast<const float *>(accel_unit_values(unit, i));
    }

private:
    accel_unit_t *unit;
};

// Parameter `index`'s gradient, to be added to.
float *gradient(accel_unit_t *unit, int index)
{
    float *g = nullptr;
    check([&](accel_error_t *e) { return accel_unit_gradient(unit, index, &g, e); });
    return g;
}

// One micro-batch: sin(3a) * b from pairs (a, b), as in byo.c. The run gives sample numbers
// only, and the samples are made from them here.
void micro_batch(accel_t *run, accel_unit_t *first, accel_unit_t *last)
{
    std::vector<int64_t> number(batch);
    std::vector<float> x(batch * in), want(batch), h(batch * hidden), dy(batch), dh(batch * hidden);
    double loss = 0;

    check([&](accel_error_t *e) { return accel_next_samples(run, number.data(), batch, e); });
    for (int r = 0; r < batch; r++) {
        auto u = static_cast<uint32_t>(number[r] % 4096) * 2654435761u + 12345u;
        for (int i = 0; i < in; i++) {
            u = (u ^ u >> 15) * 2246822519u + 1u;
            x[r * in + i] = static_cast<float>(u >> 8) / 8388608.0f - 1.0f;
        }
        want[r] = std::sin(3.0f * x[r * in]) * x[r * in + 1];
    }
    // Forward of the first layer: its values are needed in this scope only.
    {
        wanted p(first);
        for (int r = 0; r < batch; r++)
            for (int o = 0; o < hidden; o++) {
                float sum = p[1][o];
                for (int i = 0; i < in; i++)
                    sum += x[r * in + i] * p[0][o * in + i];
                h[r * hidden + o] = sum > 0 ? sum : 0;
            }
    }
    // Forward, loss and backward of the last layer in one gather.
    {
        wanted p(last);
        float *dw = gradient(last, 0), *db = gradient(last, 1);
        for (int r = 0; r < batch; r++) {
            float y = p[1][0];
            for (int i = 0; i < hidden; i++)
                y += h[r * hidden + i] * p[0][i];
            dy[r] = 2 * (y - want[r]) / batch;
            loss += (y - want[r]) * (y - want[r]) / batch;
            db[0] += dy[r];
            for (int i = 0; i < hidden; i++) {
                dw[i] += dy[r] * h[r * hidden + i];
                dh[r * hidden + i] = h[r * hidden + i] > 0 ? dy[r] * p[0][i] : 0;
            }
        }
    }
    // Backward of the first layer needs no values, only h and dh.
    float *dw = gradient(first, 0), *db = gradient(first, 1);
    for (int r = 0; r < batch; r++)
        for (int o = 0; o < hidden; o++) {
            db[o] += dh[r * hidden + o];
            for (int i = 0; i < in; i++)
                dw[o * in + i] += dh[r * hidden + o] * x[r * in + i];
        }
    check([&](accel_error_t *e) { return accel_finish_backward(run, loss, e); });
    check([&](accel_error_t *e) { return accel_step(run, e); });
}

// A unit with weight [out, width] and bias [out].
accel_unit_t *layer(accel_t *run, const char *name, int64_t out, int64_t width)
{
    accel_error_t err{};
    accel_unit_t *u = accel_unit_new(run, name, &err);
    const int64_t dims[] = { out, width };

    if (u == nullptr)
        throw failure(err);
    check([&](accel_error_t *e) {
        return accel_unit_param(u, "weight", 2, dims, { ACCEL_INIT_UNIFORM, 0.5f }, nullptr, e);
    });
    check([&](accel_error_t *e) {
        return accel_unit_param(u, "bias", 1, dims, { ACCEL_INIT_ZEROS, 0 }, nullptr, e);
    });
    return u;
}

} // namespace

int main(int argc, char **argv)
{
    accel_t *run = nullptr;
    accel_status_t code = ACCEL_OK;

    try {
        accel_options_t options{};
        options.bytes = sizeof(options);
        options.run_name = "byo";
        options.log = accel_log_stderr;
        check([&](accel_error_t *e) { return accel_open(&run, &options, e); });
        accel_unit_t *first = layer(run, "first", hidden, in), *last = layer(run, "last", 1, hidden);
        // No kernels and no bfloat16 here: the loops above are for float32 in host memory.
        if (accel_stream(run) != nullptr || accel_unit_dtype(first) != ACCEL_F32)
            check([](accel_error_t *e) {
                return accel_error_set(e, ACCEL_EUNSUPPORTED, "byo runs on CPUs in float32",
                                       "set use_cpu: true and mixed_precision: 'no'");
            });
        accel_optimizer_t adamw{};
        adamw.bytes = sizeof(adamw);
        adamw.lr = 1e-2f;
        accel_job_t job{};
        job.bytes = sizeof(job);
        job.steps = argc > 2 ? std::atoi(argv[2]) : 200;
        job.batch = batch;
        job.seed = 1;
        job.out_dir = argc > 1 ? argv[1] : nullptr;
        job.optimizer = &adamw;
        check([&](accel_error_t *e) { return accel_prepare(run, &job, e); });
        while (accel_more(run))
            micro_batch(run, first, last);
    } catch (const failure &e) {
        code = e.code;
        if (e.what()[0]) // else another rank says why
            std::fprintf(stderr, "%s\n", e.what());
    }
    accel_close(run, nullptr);
    return accel_exit_code(code);
}
