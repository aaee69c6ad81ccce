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

/* A tag and its text. */
struct item {
    const char *name, *text;
};

/* The ways to start a run, with the options of srun. */
static const struct item forms[] = {
    { "srun --accel-config=FILE PROGRAM ...",
      "Runs one step with the number of tasks that FILE (num_processes, num_machines) "
      "or the command line gives. FILE is checked before anything is queued; if it is "
      "invalid, srun exits with 255." },
    { "#SBATCH --accel-config=FILE",
      "In a batch script, or as an option of sbatch. FILE is checked at submission and "
      "passed to every srun of the job. For steps other than training, use srun "
      "--accel-config=none." },
    { "salloc --accel-config=FILE",
      "The same for an interactive allocation; a step may name another file." },
    { "--accel-resume=auto|none|PATH",
      "Selects what a run resumes from: the newest intact checkpoint of its directory "
      "(auto, the default), nothing (none), or the checkpoint PATH." },
    { "--accel-dry-run", "Shows what would run, and queues nothing." },
    { "accel launch --config FILE -n N PROGRAM ...",
      "Starts N processes on this machine without Slurm. See accel(1)." },
};

static const struct item variables[] = {
    { "ACCEL_KEY",
      "Sets the key of that name, in capitals, and overrides all files: "
      "ACCEL_MIXED_PRECISION=bf16. accel-config(5) has the name for each key." },
    { "ACCEL_CONFIG", "The config file of the run. srun and accel launch set it; a "
                      "program started by hand reads it." },
    { "ACCEL_RESUME", "The value of --accel-resume: auto, none or an absolute path." },
    { "ACCEL_BOOT_TIMEOUT_MS",
      "How long a rank waits for the others at start-up, in milliseconds." },
    { "ACCEL_COMM_TIMEOUT_MS",
      "How long a rank waits for the others in a collective, in milliseconds." },
    { "ACCEL_CUDA_MODULE",
      "The file of the CUDA module (default: the accel_cuda.so installed with the "
      "library)." },
    { "ACCEL_CUDA_GRAPHS",
      "0: launch the kernels of a micro-batch one by one instead of recording them as "
      "a graph." },
    { "ACCEL_CUDA_TUNE",
      "1: time several algorithms for every matrix product in the first step, and use "
      "the fastest. Two runs may then differ in the last bits." },
    { "ACCEL_CUDA_EPILOGUES", "For comparisons. forward: in the backward pass, "
                              "separate kernels instead of the matrix products apply "
                              "the derivative of GELU and sum the gradients of biases. "
                              "none: in the forward pass too, separate kernels add the "
                              "bias and apply GELU." },
    { "ACCEL_NCCL_LIBRARY",
      "The file of the NCCL library (default: the libnccl.so.2 that the loader "
      "finds)." },
    { "ACCEL_RANK, ACCEL_WORLD_SIZE, ACCEL_LOCAL_RANK, ACCEL_LOCAL_WORLD_SIZE, "
      "ACCEL_NODE_RANK, ACCEL_NUM_NODES",
      "Set for each task: its place in the run. The variables of torch and of "
      "accelerate launch (RANK, MASTER_ADDR, ACCELERATE_*, FSDP_* ...) are set as "
      "well, unless the user exported them." },
    { "ACCEL_RESTART_COUNT", "Set for each task: the number of restarts of this run." },
    { "ACCEL_CONFIG_DIGEST, ACCEL_CONFIG_RESOLVED, ACCEL_FIRST_JOB_ID, "
      "ACCEL_LAUNCH_ENVIRONMENT, ACCEL_LAUNCH_PORT, ACCEL_OMP_NUM_THREADS, "
      "ACCEL_PREEMPTION_NOTICE, ACCEL_RESTART_SHORT, ACCEL_SIZED, "
      "ACCEL_TASKS_PER_NODE, ACCEL_WARNING, SLURM_ACCEL_ENVIRONMENT, "
      "SLURM_ACCEL_WARNING",
      "Used between the parts of accel. Do not set them." },
};

static const struct item files[] = {
    { "FILE.yaml",
      "The config of a run, as accelerate config writes it: accel-config(5)." },
    { "$XDG_CONFIG_HOME/accel/config.yaml",
      "Settings of the user (by default below ~/.config)." },
    { SYSCONFDIR "/accel/site.yaml",
      "Settings of the site. It can lock keys, and only root may be able to write "
      "it." },
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
        "The config file has the format of Hugging Face Accelerate. libaccel(3) "
        "shards, saves and resumes the programs that link it. Python programs that use "
        "accelerate or torch get the environment that accelerate launch would give "
        "them. No address, port or rank has to be passed by hand.");
    roff_section("WAYS TO START A RUN");
    print_items(forms, ACCEL_ARRAY_SIZE(forms));
    roff_section("WHERE SETTINGS COME FROM");
    roff_text(
        "The first source that sets a key wins: option, ACCEL_KEY in the environment, "
        "job file, user file, site file, built-in default. A key that the site locks "
        "cannot be set elsewhere. To show the origin of each value:\n");
    roff_example("accel config show --origin FILE");
}

/* What happens from the warning to the next life of the job. */
static void print_preemption(void)
{
    roff_section("PREEMPTION");
    roff_text(
        "On SIGTERM or SIGUSR1, or shortly before the time limit, all ranks stop at "
        "the same step, save, and exit with status 85: state is saved, run again to "
        "continue. A batch job is requeued under its job id; a bare srun requests a "
        "new allocation and runs the same command again. A run that was killed without "
        "warning resumes from its last checkpoint. Ctrl-C saves and exits with status "
        "75; a second Ctrl-C exits at once. Neither causes a restart, nor does "
        "scancel. The same command, run again, resumes at the exact sample with the "
        "same bits.\n");
}

/* How to read a message, and the areas of their codes. */
static void print_messages(void)
{
    size_t n, pages_count;
    const struct message_area *areas = message_areas(&n);
    const struct message_page *pages = message_pages(&pages_count);

    roff_section("MESSAGES");
    roff_text(
        "Every error has a code that never changes, and says what happened, where, and "
        "how to cure it:\n");
    roff_example(
        "error[A0301]: num_processes: the config says 4, but 2 processes started\n"
        "  cure: change num_processes in the config or the number of tasks");
    roff_paragraph(
        "accel explain A0301 prints the page of a code, and accel explain lists all "
        "codes. The first two digits give the area:");
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
