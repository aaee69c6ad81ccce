/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a batch script: which line starts Python without a launcher, and what is
 * no reason for a hint.
 */
#include <string.h>

#include "srun_plugin/options/cmdline.h"
#include "tests/tap.h"

static const struct {
    const char *text;
    int line;
} scripts[] = {
    { "#!/bin/sh\n#SBATCH --accel-config=x.yaml\npython train.py\n", 3 },
    { "#!/bin/sh\n\n  python3 -u train.py --epochs 3\n", 3 },
    { "python3.11 train.py", 1 },
    { "/opt/conda/bin/python train.py\n", 1 },
    { "cd work && python train.py\n", 1 },
    { "OMP_NUM_THREADS=4 exec python train.py\n", 1 },
    { "for i in 1 2; do python train.py $i; done\n", 1 },
    { "if python check.py; then python train.py; fi\n", 1 },
    { "./train.py\n", 1 },
    { "python -m my.trainer\n", 1 },
    { "echo a\npython a.py\npython b.py\n", 2 },
    { "# srun python train.py\npython train.py\n", 2 },
    { "./prepare.sh\npython train.py\n", 2 },
    /* Somebody starts it. */
    { "srun python train.py\n", 0 },
    { "python prepare.py\nsrun python train.py\n", 0 },
    { "python prepare.py\n/usr/bin/srun -n2 ./train\n", 0 },
    { "LAUNCH=\"srun -n 4\"\n$LAUNCH python train.py\npython after.py\n", 0 },
    { "$SRUN true\npython train.py\n", 0 },
    { "accel launch -n 2 train.py\npython after.py\n", 0 },
    { "python -m torch.distributed.run train.py\n", 0 },
    { "mpirun python train.py\n", 0 },
    /* No program of the user's. */
    { "", 0 },
    { "\n\n#\n", 0 },
    { "# python train.py\n", 0 },
    { "python -m venv v\npython -m pip install x\n", 0 },
    { "python -c 'print(1)'\npython -V\npython --version\n", 0 },
    { "python\n", 0 },
    { "./run.sh\nbash inner.sh\nsource env.sh\n", 0 },
    { "module load python\npip install torch\n", 0 },
    { "cat train.py\ncp train.py /tmp\n", 0 },
    { "pythonic train.py\n", 0 },
    { "echo srunning\npython train.py\n", 2 },
};

static const struct {
    const char *word;
    bool yes;
} words[] = {
    { "python", true },     { "python3", true },    { "/usr/bin/python3.12", true },
    { "train.py", true },   { "a/b.py", true },     { "pythonw", false },
    { ".py", false },       { "train.pyc", false }, { "py", false },
    { "my-python", false }, { "python3/x", false }, { "", false },
    { "x/python", true },
};

static const struct {
    const char *line, *launcher;
} worlds[] = {
    { "torchrun train.py", "torchrun" },
    { "/opt/venv/bin/torchrun --nproc_per_node 4 train.py", "torchrun" },
    { "torchrun --nnodes=1 --nproc_per_node=4 train.py", "torchrun" },
    { "torchrun --nnodes 1 train.py", "torchrun" },
    { "accelerate launch train.py", "accelerate launch" },
    { "accelerate launch --num_machines 1 train.py", "accelerate launch" },
    { "python -m torch.distributed.run train.py", "torch.distributed.run" },
    { "python3 -u -m accelerate.commands.launch train.py",
      "accelerate.commands.launch" },
    { "bash -c cd work && exec torchrun train.py", "torchrun" },
    { "sh -c A=b accelerate launch train.py", "accelerate launch" },
    { "deepspeed train.py", "deepspeed" },
    /* One world of several nodes. */
    { "torchrun --nnodes=2 --rdzv_endpoint=n1:1 train.py", NULL },
    { "torchrun --nnodes 1:4 train.py", NULL },
    { "torchrun --nnodes=12 train.py", NULL },
    { "accelerate launch --num_machines 2 train.py", NULL },
    /* No launcher, or none that runs. */
    { "", NULL },
    { "python train.py", NULL },
    { "python train.py --deepspeed ds.json", NULL },
    { "python -m my.trainer torchrun", NULL },
    { "accelerate env", NULL },
    { "accelerate", NULL },
    { "echo torchrun", NULL },
    { "./torchrunner train.py", NULL },
};

int main(void)
{
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const char *found = script_own_world(worlds[i].line),
                   *want = worlds[i].launcher;

        tap_is_str(found ? found : "none", want ? want : "none", "world of '%s'",
                   worlds[i].line);
    }
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        tap_is_int(script_bare_python(scripts[i].text), scripts[i].line, "script %zu",
                   i);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        tap_ok(names_python(words[i].word, strlen(words[i].word)) == words[i].yes,
               "'%s' is %sPython", words[i].word, words[i].yes ? "" : "not ");
    tap_ok(!names_python("python train.py", 4), "the word ends where it is said to");
    return tap_done();
}
