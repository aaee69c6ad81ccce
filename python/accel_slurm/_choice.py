# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint a Trainer resumes from: the newest whole one, the same on all ranks."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from . import marker
from ._lib import INVAL, Error

if TYPE_CHECKING:
    from .job import Job

_NEUTRAL = -(1 << 63)
_NOTHING: dict[str, Any] = {}
_CHECKPOINT = re.compile("checkpoint-([0-9]+)")


class Form(NamedTuple):
    """What a run must have in common with the checkpoint it resumes from.

    batch: samples per device; -1: the Trainer takes the checkpoint's.
    accumulation: batches per step.
    """

    ranks: int
    batch: int
    accumulation: int


def checkpoints(directory: str) -> list[tuple[int, str]]:
    """(step, path) of what lies in `directory` as checkpoint-N, the newest first."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        path = os.path.join(directory, name)
        if match and os.path.isdir(path):
            found.append((int(match.group(1)), path))
    return sorted(found, reverse=True)


class _Foreign(Exception):
    """Another training of the program wrote the checkpoint; the text says which."""


class Choice:
    """The search of one rank. Every method is collective.

    Args:
        checks: whether this rank reads checkpoints: one rank does, or one per node.
        say: prints a line.
        number: which train() of the program with this output_dir it is for, from 1.
            Only that one's checkpoints are used: another training has other data.
        is_first: whether it is the program's first train() at all. A path that the user
            gives is for that one.
    """

    def __init__(
        self,
        job: Job,
        checks: bool,
        say: Callable[[str], None],
        number: int,
        is_first: bool,
    ) -> None:
        self._job = job
        self._checks = checks
        self._say = say
        self._number = number
        self._wanted = job.resume if is_first or job.resume == "auto" else None
        self._said: set[str] = set()

    def _newest(
        self, directory: str, below: int, run_id: str | None
    ) -> tuple[int, dict[str, Any]]:
        """The newest whole one of a step < below; of that run, if run_id is given."""
        for step, path in checkpoints(directory):
            if step >= below:
                continue
            try:
                content = marker.read(path)
                if run_id is not None and content.get("run_id") != run_id:
                    continue
                self._check_number(content)
                return step, marker.check(path)
            except marker.Torn as torn:
                self._say_once(path, f"is not whole and is not used: {torn}")
            except _Foreign as foreign:
                self._say_once(path, f"is not used: {foreign}")
        return -1, {}

    def _say_once(self, path: str, text: str) -> None:
        if path not in self._said:
            self._said.add(path)
            self._say(f"{path} {text}")

    def _check_number(self, content: dict[str, Any]) -> None:
        number = content.get("training", 1)
        if number != self._number:
            raise _Foreign(
                f"train() number {number} of the program wrote it, and this is number "
                f"{self._number}"
            )

    def _agreed(self, directory: str, run_id: str | None) -> tuple[int, dict[str, Any]]:
        """The newest that is whole wherever a rank checks. Step -1: there is none."""
        below = 1 << 62
        while True:
            step, content = -1, _NOTHING
            mine = [_NEUTRAL, _NEUTRAL]
            if self._checks:
                step, content = self._newest(directory, below, run_id)
                mine = [-step, step]
            lowest, highest = self._job._agree(mine)
            if -lowest == highest:
                return highest, content
            below = -lowest + 1

    def find(self, form: Form) -> tuple[str | None, bool]:
        """The checkpoint to resume from, and whether its evaluation is still to come.

        None: the training begins at step 0. Error: it was written by another number of
        ranks, or with other batches; or a rank does not see it.
        """
        job, wanted = self._job, self._wanted
        sources: list[tuple[str, str | None]] = []
        if job.restart > 0:
            sources.append((job.directory, job.run_id))
        if wanted == "auto":
            sources.append((job.directory, None))
        elif wanted == "best":
            raise Error(
                INVAL,
                "a Trainer cannot resume from the best checkpoint",
                "give auto, none, or the path of a checkpoint-N",
                "ACCEL_RESUME",
            )
        elif wanted not in (None, "none"):
            assert wanted is not None
            if _CHECKPOINT.fullmatch(os.path.basename(wanted.rstrip("/"))):
                return self.given(wanted, form)
            sources.append((wanted, None))
        for directory, run_id in sources:
            step, content = self._agreed(directory, run_id)
            if step >= 0:
                path = os.path.join(directory, f"checkpoint-{step}")
                return path, self._fits(path, content, form)
        if sources and wanted not in (None, "none", "auto"):
            raise Error(
                INVAL,
                "there is no whole checkpoint-N to resume from",
                "give the path of one, or --accel-resume=none",
                wanted or "",
            )
        if self._job._rank == 0 and (self._job.restart > 0 or self._said):
            self._say(
                f"no whole checkpoint in {job.directory}: the training begins at step 0"
            )
        return None, False

    def given(self, path: str, form: Form) -> tuple[str, bool]:
        """The same for one checkpoint that the user names. Error: it cannot be used."""
        reason, content = "", _NOTHING
        if self._checks:
            try:
                content = marker.check(path)
                self._check_number(content)
            except marker.Torn as torn:
                reason = f"it is not whole: {torn}"
            except _Foreign as foreign:
                reason = str(foreign)
        if self._job._agree([1 if reason else 0])[0]:
            raise Error(
                INVAL,
                "this checkpoint cannot be used: %s"
                % (reason or "another rank says why"),
                "give another one, or --accel-resume=auto for the newest whole one",
                path,
            )
        return path, self._fits(path, content, form)

    def of_script(self, path: str) -> bool:
        """The script itself has chosen: says if it is not whole. Evaluation to come?"""
        due = 0
        if self._checks:
            try:
                due = int(bool(marker.check(path).get("evaluate")))
            except marker.Torn as torn:
                self._say(
                    f"warning: the script resumes from {path}, which is not whole: {torn}. "
                    "Without resume_from_checkpoint accel takes the newest whole one"
                )
        return self._job._agree([due])[0] > 0

    def _fits(self, path: str, content: dict[str, Any], form: Form) -> bool:
        """Whether an evaluation is due. Error: the checkpoint is not for this run."""
        stored = [_NEUTRAL] * 4
        if self._checks:
            stored = [content[key] for key in ("ranks", "batch", "accumulation")]
            stored.append(int(bool(content.get("evaluate"))))
        unseen = 0 if os.path.isdir(path) else 1
        ranks, batch, accumulation, due, unseen = self._job._agree([*stored, unseen])
        if unseen:
            raise Error(
                INVAL,
                "not every rank sees this checkpoint",
                "put output_dir on a file system that all nodes share, or set "
                "save_on_each_node",
                path,
            )
        if form.batch < 0:  # the Trainer takes it from the checkpoint
            batch = form.batch
        if (ranks, batch, accumulation) != tuple(form):
            raise Error(
                INVAL,
                f"it was written by {ranks} ranks with batches of {batch} and "
                f"{accumulation} per step; this run has {form.ranks} ranks with batches "
                f"of {form.batch} and {form.accumulation} per step, and would see other "
                "samples",
                "start with the same numbers, or with --accel-resume=none from step 0",
                path,
            )
        return due > 0
