/* SPDX-License-Identifier: Apache-2.0
 *
 * accel(7): what accel is, the ways to start a run, where settings come from,
 * the variables, what happens on preemption, and how to read a message. Out:
 * man(7) markup on stdout.
 */
#include <stdio.h>

#include "cli/man/areas.h"
#include "cli/man/man_pages.h"
#include "cli/man/roff.h"
#include "common/env_names.h"

/* A tag and its text. */
struct item {
    const char *name, *text;
};

/* The ways to start a run, with the options of srun. */
static const struct item forms[] = {
    { "srun --accel-config=FILE PROGRAM ...",
      "One step of as many tasks as FILE says (num_processes, num_machines) or the "
      "command "
      "line does. FILE is checked before anything is queued; a wrong one ends srun "
      "with "
      "255." },
    { "#SBATCH --accel-config=FILE",
      "In a batch script, or as an option of sbatch: checked at submission, and handed "
      "to "
      "every srun of the job. Steps that are no training: srun --accel-config=none." },
    { "salloc --accel-config=FILE",
      "The same for an interactive allocation; a step may name another file." },
    { "--accel-resume=auto|none|PATH",
      "What a run goes on from: the newest intact checkpoint of its directory (auto, "
      "the "
      "default), nothing (none), or the checkpoint PATH." },
    { "--accel-dry-run", "Shows what would be run, and queues nothing." },
    { "accel launch --config FILE -n N PROGRAM ...",
      "Without Slurm: one process, or N through mpirun. See accel(1)." },
};

static const struct item variables[] = {
    { ENV_PREFIX "KEY",
      "Sets the key of that name, in capitals, stronger than any file: " ENV_PREFIX
      "MIXED_PRECISION=bf16. accel-config(5) has the name for each key." },
    { ENV_CONFIG, "The config file of the run. srun and accel launch set it; a "
                  "program that is started "
                  "by hand reads it." },
    { ENV_RESUME, "The choice of --accel-resume: auto, none or an absolute path." },
    { ENV_BOOT_TIMEOUT,
      "How long a rank waits for the others at the start, in milliseconds." },
    { ENV_COMM_TIMEOUT,
      "How long a rank waits for the others in a collective, in milliseconds." },
    { ENV_CUDA_MODULE,
      "The file of the CUDA module, accel_cuda.so; else the one installed with the "
      "library." },
    { ENV_CUDA_GRAPHS,
      "0: the kernels of a micro-batch are launched one by one, not recorded as a "
      "graph." },
    { ENV_CUDA_TUNE,
      "1: every matrix product takes the fastest of several algorithms, timed in the "
      "first step; two runs may then differ in the last bits." },
    { ENV_CUDA_EPILOGUES, "forward: in the backward, own kernels multiply with the "
                          "slope of GELU and add up "
                          "the gradients of biases, not the matrix products; none: "
                          "in the forward, too, they "
                          "add the bias and apply GELU. For comparing." },
    { ENV_NCCL_LIBRARY,
      "The file of NCCL to use between GPUs; else the loader looks for libnccl.so.2." },
    { ENV_RANK ", " ENV_WORLD_SIZE ", " ENV_LOCAL_RANK ", " ENV_LOCAL_WORLD_SIZE
               ", " ENV_NODE_RANK ", " ENV_NUM_NODES,
      "Set for each task: its place. The variables of torch and of accelerate launch "
      "(RANK, MASTER_ADDR, ACCELERATE_*, FSDP_* ...) are set besides, unless the user "
      "exported them." },
    { ENV_RESTART_COUNT, "Set for each task: how often this run was started again." },
    { ENV_DIGEST ", " ENV_RESOLVED ", " ENV_FIRST_JOB ", " ENV_LAUNCH_ENVIRONMENT
                 ", " ENV_LAUNCH_PORT ", " ENV_OMP_THREADS ", " ENV_NOTICE
                 ", " ENV_SHORT_RUNS ", " ENV_SIZED ", " ENV_TASKS_PER_NODE
                 ", " ENV_WARNING ", " ENV_CARRIER ", " ENV_JOB_WARNING,
      "What the parts of accel tell each other. Do not set them." },
};

static const struct item files[] = {
    { "FILE.yaml",
      "The config of a run, as accelerate config writes it: accel-config(5)." },
    { "$XDG_CONFIG_HOME/accel/config.yaml",
      "Settings of the user (by default below ~/.config)." },
    { SYSCONFDIR "/accel/site.yaml",
      "Settings of the site; it may lock keys, and must belong to root alone." },
    { "OUT/log.jsonl", "One record for each step." },
    { "OUT/checkpoints/step_N", "A checkpoint: HDF5 shard files and their MANIFEST." },
};

/* Each item as a tagged paragraph. */
static void print_items(const struct item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        roff_tag();
        roff_bold(items[i].name);
        roff_tag_end();
        roff_text(items[i].text);
        roff_tag_end();
    }
}

/* The ways to start a run, and where its settings come from. */
static void print_start(void)
{
    roff_title("ACCEL", 7, "Miscellaneous");
    roff_section("NAME");
    roff_text("accel - distributed, sharded, preemption-safe training under Slurm\n");
    roff_section("DESCRIPTION");
    roff_text("One option makes a training program distributed, sharded, "
              "mixed-precision and preemption-safe:\n");
    roff_example("module load accel\n"
                 "srun --accel-config=fsdp.yaml ./train");
    roff_paragraph(
        "FILE is a config as Hugging Face Accelerate writes it. Programs that "
        "link libaccel(3) are sharded, saved and resumed by it; Python programs "
        "that use accelerate or torch find the environment that accelerate "
        "launch would give them. Nothing is expanded by hand: no address, no "
        "port, no rank.");
    roff_section("WAYS TO START A RUN");
    print_items(forms, ACCEL_ARRAY_SIZE(forms));
    roff_section("WHERE SETTINGS COME FROM");
    roff_text(
        "The first that says something wins: option, ACCEL_KEY in the environment, "
        "the file of the job, the file of the user, the file of the site, the "
        "built-in default. A key that the site locks cannot be set elsewhere. The "
        "origin of each value is shown by\n");
    roff_example("accel config show --origin FILE");
}

/* What happens from the warning to the next life of the job. */
static void print_preemption(void)
{
    roff_section("PREEMPTION");
    roff_text(
        "On SIGTERM, SIGUSR1 or shortly before the time limit all ranks stop at the "
        "same step, save, and end with exit status 85: state is saved, run me again. "
        "A batch job is requeued under its job id; a bare srun asks for a new "
        "allocation and starts the same command again. A run that was killed without "
        "warning goes on from its last checkpoint. Ctrl-C saves and ends with exit "
        "status 75, a second one ends at once; neither is answered by a restart, nor "
        "is scancel. Started again, the same command goes on at the exact "
        "sample with the same bits.\n");
}

/* How to read a message, and the areas of their codes. */
static void print_messages(void)
{
    size_t n, pages_count;
    const struct message_area *areas = message_areas(&n);
    const struct message_page *pages = message_pages(&pages_count);

    roff_section("MESSAGES");
    roff_text(
        "Every error says what happened, where, and how to cure it, behind a code "
        "that never changes:\n");
    roff_example(
        "error[A0301]: num_processes: the config says 4, but 2 processes started\n"
        "  cure: change num_processes in the config or the number of tasks");
    roff_paragraph(
        "accel explain A0301 prints the page of a code, accel explain the list "
        "of all. The first two digits tell what it is about:");
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
    roff_paragraph("Exit statuses follow sysexits; accel(1) has the table.");
}

/* The page has no tables of its own: what is listed comes from the arrays
 * above and from areas.c. */
void man_overview(void)
{
    print_start();
    roff_section("ENVIRONMENT");
    print_items(variables, ACCEL_ARRAY_SIZE(variables));
    print_preemption();
    roff_section("FILES");
    print_items(files, ACCEL_ARRAY_SIZE(files));
    print_messages();
    roff_section("SEE ALSO");
    roff_bold("accel");
    roff_text("(1), ");
    roff_bold("accel-config");
    roff_text("(5), ");
    roff_bold("libaccel");
    roff_text("(3), ");
    roff_bold("srun");
    roff_text("(1)\n");
}
