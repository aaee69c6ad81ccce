# SPDX-License-Identifier: Apache-2.0
"""What a run of make check-python has done, from what its ranks printed."""

import re

# "rank 1 step 12 samples [3, 4] loss 0.123456": all of the line, which a kill may have cut.
STEP = re.compile(r"rank (\d+) step (\d+) (samples \[.*\] loss \S+)")


def kept(text, ranks):
    """For each rank, [step, what it did], for the steps that the last weights are made of.

    Where an attempt begins again at step N, what the one before did from there on is lost.
    """
    histories = [[] for _ in range(ranks)]
    for line in text.splitlines():
        found = STEP.fullmatch(line)
        if found:
            rank, step = int(found[1]), int(found[2])
            history = histories[rank]
            while history and history[-1][0] >= step:
                history.pop()
            history.append([step, found[3]])
    return histories


def steps_wrong(histories, steps):
    """Why the ranks have not done each step once, as a list of sentences."""
    wanted = list(range(1, steps + 1))
    wrong = []
    for rank, history in enumerate(histories):
        done = [step for step, _ in history]
        if done != wanted:
            missing = sorted(set(wanted) - set(done))[:5]
            wrong.append(f"rank {rank} kept {len(done)} of {steps} steps, not {missing}")
    return wrong


def difference(histories, reference):
    """Where the ranks did something else than the undisturbed run, as a list of sentences."""
    wrong = []
    for rank, (history, other) in enumerate(zip(histories, reference)):
        for mine, theirs in zip(history, other):
            if mine != theirs:
                wrong.append(f"rank {rank}, step and what: {mine}, undisturbed {theirs}")
                break
    return wrong
