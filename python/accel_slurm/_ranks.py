# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job agree: one MAX all_reduce of a few numbers, on a gloo group.

Every collective of a job has this shape, whatever it is for, so that a rank which has
finished its loop can take part in those of the ranks that still run without knowing
what they ask for. It adds nothing to them but the news that it has finished. The
numbers say also which call they come from: where one rank steps and another one saves,
both of them see it and fail, and neither takes the other's numbers for an answer.

A stop takes two reductions. The first one, launched by a step and read in the next,
tells that some rank wants it. The second confirms, within a step of all ranks, that
none of them has finished meanwhile: each rank decides from the same result.
"""

from __future__ import annotations

import ctypes
import sys

from ._lib import INVAL, PEER, Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

# The slots: which call the ranks are in, the same negated (so that both its largest and
# its smallest are known), whether a rank has finished, and the values.
_CALL, _CALL_NEGATED, _FINISHED, _VALUES = 0, 1, 2, 3
_COUNT = 8
_STEP, _CONFIRM, _AGREE = 1, 2, 3  # the calls
_NEUTRAL = -(1 << 63)

# A rank may be alone for long (evaluation, a save): only a dead one ends the wait.
_PATIENCE_DAYS = 30


def group_is_ready() -> bool:
    """Whether the program has initialised torch.distributed. Imports nothing."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist and dist.is_available() and dist.is_initialized())


class _Numbers:
    """The numbers as ctypes sees them, and as the tensor of the same memory."""

    def __init__(self) -> None:
        import torch

        self.of = (ctypes.c_int64 * (_VALUES + _COUNT))(
            *[_NEUTRAL] * (_VALUES + _COUNT)
        )
        self.tensor = torch.frombuffer(self.of, dtype=torch.int64)
        # Never freed: gloo's thread may hold the last reference when the interpreter is
        # torn down, and to give it up there aborts the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.tensor))

    def fill(self, call: int, values: Sequence[int]) -> None:
        """What a rank contributes that is in `call`; 0: it has finished."""
        of = self.of
        of[_CALL] = call or _NEUTRAL
        of[_CALL_NEGATED] = -call or _NEUTRAL
        of[_FINISHED] = not call
        for slot in range(_COUNT):
            of[_VALUES + slot] = values[slot] if slot < len(values) else _NEUTRAL

    def some_run(self) -> bool:
        return bool(self.of[_CALL] > 0)

    def check(self) -> None:
        """Error: the ranks that run are not in the same call."""
        if self.some_run() and self.of[_CALL] != -self.of[_CALL_NEGATED]:
            raise Error(
                INVAL,
                "the ranks have called different functions of the job",
                "let all ranks call should_stop and save in the same order; what only "
                "one rank writes is chosen in the function that save is given",
                "accel_slurm",
            )


class Ranks:
    """All ranks of the job. Made by all of them together.

    Attributes:
        ended: whether a rank is known to have finished its loop. The same on all.
    """

    def __init__(self, rank: int, size: int) -> None:
        if not group_is_ready():
            raise Error(
                INVAL,
                f"WORLD_SIZE is {size}, but torch.distributed has no process group",
                "call torch.distributed.init_process_group, or make the Accelerator, "
                "before the first collective call of the job",
                "accel_slurm",
            )
        import datetime

        import torch.distributed as dist

        if (dist.get_rank(), dist.get_world_size()) != (rank, size):
            raise Error(
                INVAL,
                f"RANK and WORLD_SIZE say rank {rank} of {size}, the process group "
                f"rank {dist.get_rank()} of {dist.get_world_size()}",
                "let the launcher set them, and init_process_group read them",
                "accel_slurm",
            )
        patience = datetime.timedelta(days=_PATIENCE_DAYS)
        self._group: Any = dist.new_group(backend="gloo", timeout=patience)
        self._largest: Any = dist.AllreduceOptions()
        self._largest.reduceOp = dist.ReduceOp.MAX
        self._ahead = _Numbers()  # of the reduction that a step leaves to the next
        self._ahead.fill(_STEP, [0])
        self._now = _Numbers()
        self._work: Any = None
        self._told = 0
        self.ended = False

    def _lost(self, error: Exception) -> Error:
        first = (str(error).splitlines() or [""])[0]
        return Error(
            PEER,
            f"the ranks cannot agree: {first}",
            "another rank has ended or failed: see its message, which says why",
            "accel_slurm",
        )

    def _launch(self, numbers: _Numbers) -> Any:
        try:
            # dist.all_reduce calls this, too, and takes 30 us more for it.
            return self._group.allreduce([numbers.tensor], self._largest)
        except (RuntimeError, ValueError) as error:
            raise self._lost(error) from error

    def _wait(self, work: Any, numbers: _Numbers) -> Any:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._lost(error) from error
        numbers.check()
        self.ended = self.ended or numbers.of[_FINISHED] > 0
        return numbers.of

    def _reduce(self, call: int, values: Sequence[int]) -> Any:
        self._now.fill(call, values)
        return self._wait(self._launch(self._now), self._now)

    def drain(self) -> None:
        """Waits for the reduction that the last step has left, if there is one."""
        if self._work is None:
            return
        work, self._work = self._work, None
        self._told = self._wait(work, self._ahead)[_VALUES]

    def step(self, vote: int) -> int:
        """One step of a rank that runs. Returns the vote that all ranks stop with.

        Reads the reduction that the previous call has launched and launches the next,
        so that no rank waits for another one's step. 0: they go on. Collective.
        """
        self.drain()
        told, self._told = self._told, 0
        if told and not self.ended:
            agreed: int = self._reduce(_CONFIRM, [max(told, vote)])[_VALUES]
            if not self.ended:
                return agreed
        of = self._ahead.of
        of[_CALL], of[_CALL_NEGATED], of[_FINISHED] = _STEP, -_STEP, 0
        of[_VALUES] = vote
        self._work = self._launch(self._ahead)
        return 0

    def agree(self, values: Sequence[int]) -> Sequence[int]:
        """The largest of each of up to eight values over all ranks. Collective."""
        self.drain()
        of = self._reduce(_AGREE, values)
        return [of[_VALUES + slot] for slot in range(len(values))]

    def finish(self) -> None:
        """Takes part in what the other ranks do until none of them runs. Collective."""
        self.drain()
        self._reduce(0, [])
        while self._now.some_run():
            self._reduce(0, [])
