# SPDX-License-Identifier: Apache-2.0
"""Draws the runs of make check-python: a line for each, `key=value` separated by blanks.

    draw.py COUNT SEED [NAMES]

COUNT runs of each program. Every combination of notice, grace time and form comes as often
as COUNT allows, at least COUNT // 8 times, and the rest is drawn. NAMES: shell patterns for
the names of runs, with commas between them; others are drawn, too, but not printed, so that
a run is the same whichever are asked for.
"""

import fnmatch
import itertools
import random
import sys

# When the preemption comes: at a step, in an evaluation, or in a save. `kill`: in a save
# that goes on until Slurm kills it, which leaves half a checkpoint behind.
MOMENTS = {
    "trainer": ("step", "step", "save", "kill"),
    "jit": ("step", "step", "save", "kill"),
    "evaluation": ("step", "evaluation", "evaluation", "save", "kill"),
    "ddp": ("step", "step", "save", "kill"),
    "fsdp2": ("step", "step", "save", "kill"),
}
COMBINATIONS = list(
    itertools.product(("term", "user"), ("grace", "none"), ("batch", "bare"))
)


def runs(count, seed):
    """All runs, as dictionaries."""
    for program, moments in MOMENTS.items():
        draw = random.Random(f"{seed} {program}")
        whole = COMBINATIONS * (count // len(COMBINATIONS))
        rest = draw.sample(COMBINATIONS, count % len(COMBINATIONS))
        for number, (notice, grace, form) in enumerate(whole + rest, 1):
            moment = draw.choice(moments)
            if moment == "kill" and grace == "grace":
                moment = "save"  # the kill would be a minute away
            yield {
                "name": f"{program}-{number:02}-{notice}-{grace}-{form}-{moment}",
                "program": program,
                "notice": notice,
                "grace": grace,
                "form": form,
                "moment": moment,
                # Of the steps: late enough in them for a checkpoint before a `kill`.
                "part": f"{draw.uniform(0.25 if moment == 'kill' else 0.02, 0.6):.3f}",
            }


def main():
    count, seed = int(sys.argv[1]), sys.argv[2]
    patterns = (sys.argv[3] if len(sys.argv) > 3 else "*").split(",")
    for run in runs(count, seed):
        if any(fnmatch.fnmatchcase(run["name"], pattern) for pattern in patterns):
            print(*(f"{key}={value}" for key, value in run.items()))


if __name__ == "__main__":
    main()
