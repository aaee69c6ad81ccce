# SPDX-License-Identifier: Apache-2.0
"""One run of make check-python, on the cluster that is up: a job is preempted, and judged.

    run_one.py STATE KEY=VALUE...

The keys are those of draw.py, and `ranks`, on two nodes: 4. `moment=none`: undisturbed.

Prints what is wrong, a line each, and nothing else: then the run is good. Its directory
STATE/NAME keeps the logs. STATE/undisturbed-PROGRAM holds the run to compare with.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import history

HANG_S = int(os.environ.get("HANG_S", "600"))
HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")
TRAINER = (
    "--output_dir checkpoints --max_steps {steps} --save_steps {every} --use_cpu "
    "--per_device_train_batch_size 4 --per_device_eval_batch_size 8 --report_to none "
    "--logging_strategy no --disable_tqdm true --save_total_limit 2 "
)
LOOP = "--directory checkpoints --steps {steps} --save-every {every} "
# Program: its script, steps, steps between saves, arguments.
PROGRAMS = {
    "trainer": ("hf_trainer.py", 200, 40, TRAINER),
    "jit": ("hf_trainer.py", 200, 40, TRAINER + "--enable_jit_checkpoint true"),
    "evaluation": (
        "hf_trainer.py",
        160,
        40,
        TRAINER + "--dataloader_num_workers 1 --eval_strategy steps --eval_steps 20",
    ),
    "ddp": ("ddp_loop.py", 400, 80, LOOP + "--workers 1"),
    "fsdp2": ("fsdp2_loop.py", 300, 60, LOOP),
}
# What no run may say.
UNWANTED = re.compile(
    r"Traceback|Error|failed|A0\d\d\d|knows of no checkpoint|no Trainer reported|is not whole"
    r"|left as it is|counts as finished"
)


def slurm(*command):
    """The standard output of a command of Slurm's."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, timeout=HANG_S, text=True
    )
    return done.stdout


def wait_until(condition, what):
    deadline = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {HANG_S} s")
        time.sleep(0.1)


class Run:
    """A run in its directory, which is made anew."""

    def __init__(self, state, facts):
        self.facts = facts
        self.ranks = int(facts.get("ranks", 4))
        script, self.steps, every, arguments = PROGRAMS[facts["program"]]
        self.directory = os.path.join(state, facts["name"])
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)
        for name in ("reached", "noticed", "out", "checkpoints", "run.sh", "config.yaml"):
            setattr(self, name.partition(".")[0], os.path.join(self.directory, name))
        trainer = script == "hf_trainer.py"
        self.environment = dict(
            os.environ,
            CHECK_MOMENT=facts["moment"],
            CHECK_STEP=str(int(self.steps * float(facts.get("part", 1)))),
            CHECK_LAST=str(self.steps),
            CHECK_REACHED=self.reached,
            CHECK_NOTICED=self.noticed,
            CHECK_TRAINER="1" if trainer else "",
            # Of this run alone: what it leaves is known by it.
            CHECK_RUN=self.directory,
        )
        self.command = [
            sys.executable,
            os.path.join(HERE, "hooks.py"),
            os.path.join(EXAMPLES, script),
            *arguments.format(steps=self.steps, every=every).split(),
        ]
        with open(self.config, "w", encoding="utf-8") as file:
            print("distributed_type: MULTI_CPU\nuse_cpu: true", file=file)
            print(f"num_machines: 2\nnum_processes: {self.ranks}", file=file)
            if trainer:
                print("accel: {python: {trainer: true}}", file=file)

    def text(self):
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- the job ----

    def start(self):
        """Starts the job. Returns the process of srun or of sbatch --wait."""
        nodes = ["-N2", f"-n{self.ranks}", f"--ntasks-per-node={self.ranks // 2}"]
        nodes += ["-J", self.facts["name"], "--accel-config=config.yaml"]
        with open(self.out, "ab") as out:
            if self.facts["form"] == "bare":
                command = ["srun", *nodes, *self.command]
            else:
                with open(self.run, "w", encoding="utf-8") as script:
                    print("#!/bin/sh\nsrun --accel-config=config.yaml", *self.command, file=script)
                command = ["sbatch", "--wait", "-Q", "-o", "out", *nodes, "run.sh"]
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def job_has_notice(self):
        """Whether Slurm has told the job, or ended it: only the first attempt is asked."""
        shown = slurm("squeue", "-h", "-n", self.facts["name"], "-o", "%A %T").split()
        if len(shown) < 2 or shown[1] != "RUNNING":
            return True
        job = slurm("scontrol", "-o", "show", "job", shown[0])
        return "PreemptTime=None" not in job

    def preempt(self, job):
        wait_until(
            lambda: os.path.exists(self.reached) or job.poll() is not None,
            f"the {self.facts['moment']}",
        )
        if job.poll() is not None:
            return
        command = ["srun", "-Q", "-p", "high", "-N2", "-n2", "--exclusive"]
        command += ["--accel-config=none", "true"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as high:
            try:
                wait_until(self.job_has_notice, "the notice")
                open(self.noticed, "w", encoding="utf-8").close()
                high.wait(HANG_S)
            finally:
                high.kill()

    # ---- judging ----

    def weights(self):
        """A text that is the same only for the same last weights."""
        path = os.path.join(self.checkpoints, "model.safetensors")
        if "hf_trainer.py" in self.command[2]:
            with open(path, "rb") as file:
                return hashlib.sha256(file.read()).hexdigest()
        return "".join(re.findall(r"^finished: weights (\w+)$", self.text(), re.MULTILINE))

    def processes(self):
        """The processes of this run that live."""
        mark, found = f"CHECK_RUN={self.directory}\0".encode(), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read():
                        found.append(name)
            except OSError:
                pass  # it has ended
        return found

    def said_wrong(self):
        """Lines that are missing from the output, or do not belong there."""
        text, facts = self.text(), self.facts
        wrong = []
        for line in text.splitlines():
            if UNWANTED.search(line) and not self.belongs(line):
                wrong.append(f"says: {line}")
        if facts["moment"] == "none":
            return wrong
        if facts["form"] == "bare":
            wanted = [r"requesting a new allocation \(restart 1 of at most"]
        elif facts["grace"] == "grace":
            wanted = [r"is requeued and will resume automatically \(restart 1 of at most"]
        else:
            wanted = []  # Slurm requeues it, and may kill all before they have said a word
        if facts["grace"] == "grace":
            wanted.append(r"received SIG(TERM|USR1): saving step")
        wanted.append(r"resum(es at step|ing from) \S+")
        wrong += [f"says nothing like '{w}'" for w in wanted if not re.search(w, text)]
        return wrong

    def belongs(self, line):
        """Whether this line may stand there: of a checkpoint that a kill has cut short."""
        killed = self.facts["moment"] == "kill" or self.facts["grace"] == "none"
        return killed and re.search(
            r"error: .*(CANCELLED|Killed|Terminated|PREEMPT)|step tasks failed"
            r"|is not whole|DUE TO PREEMPTION|can resume from step",
            line,
        )

    def judge(self, undisturbed):
        """All that is wrong with the finished run."""
        histories = history.kept(self.text(), self.ranks)
        wrong = history.steps_wrong(histories, self.steps) + self.said_wrong()
        if undisturbed:
            wrong += history.difference(histories, undisturbed["histories"])
            if self.weights() != undisturbed["weights"]:
                wrong.append("the last weights are not those of the undisturbed run")
        return wrong

    def facts_to_compare(self):
        return {"histories": history.kept(self.text(), self.ranks), "weights": self.weights()}


def of_dead(names):
    """Names of /dev/shm that torch gave and whose process is gone: torch_PID_..."""
    dead = set()
    for name in names:
        found = re.match(r"torch_(\d+)_", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            dead.add(name)
    return dead


def main():
    state = os.path.abspath(sys.argv[1])
    facts = dict(argument.split("=", 1) for argument in sys.argv[2:])
    disturbed = facts["moment"] != "none"
    record = os.path.join(state, f"undisturbed-{facts['program']}.json")
    run = Run(state, facts)
    before = of_dead(os.listdir("/dev/shm"))
    wrong = []
    if not disturbed:
        open(run.noticed, "w", encoding="utf-8").close()
    job = run.start()
    try:
        if disturbed:
            run.preempt(job)
        code = job.wait(HANG_S)
        if code:
            wrong.append(f"{job.args[0]} ended with {code}")
        wait_until(lambda: not run.processes(), "the end of all its processes")
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        wrong.append(str(error))
        slurm("scancel", "-n", facts["name"])
        job.kill()
        job.wait()
    undisturbed = None
    if disturbed:
        with open(record, encoding="utf-8") as file:
            undisturbed = json.load(file)
    wrong += run.judge(undisturbed)
    left = of_dead(os.listdir("/dev/shm")) - before
    if left:
        wrong.append(f"left in /dev/shm: {' '.join(sorted(left))}")
    for line in wrong:
        print(line)
    if not wrong:
        if not disturbed:
            with open(record + ".new", "w", encoding="utf-8") as file:
                json.dump(run.facts_to_compare(), file)
            os.replace(record + ".new", record)
        shutil.rmtree(run.checkpoints)


if __name__ == "__main__":
    main()
