# SPDX-License-Identifier: Apache-2.0
"""The job: all ranks stop at one step, save, and the job comes back where it left off."""

from __future__ import annotations

import ctypes
import os
import sys

from . import _lib
from ._leaving import forget_exit_code, keep_exit_code
from ._lib import Error
from ._ranks import Ranks, group_is_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Sequence

    from typing_extensions import Self

    LogFunction = Callable[[int, str], object]

EXIT_RESUME, EXIT_STOPPED = 85, 75
_LEVELS = {0: (40, "error: "), 1: (30, "warning: "), 2: (20, "")}


def _say(text: str) -> None:
    """A line of accel's on stderr, which may be closed."""
    try:
        print("accel: " + text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise Error(
            _lib.INVAL,
            f"{name} is '{text}', not a number",
            "start the program with srun, accel launch or torchrun, or unset it",
            "accel_slurm.job",
        ) from None


def _take_interrupt() -> bool:
    """Leaves SIGINT to the library where Ctrl-C reaches a launcher's whole step.

    In a program started by hand, and where it has a handler of its own, Ctrl-C stays
    what it was. The library takes only a signal whose disposition is the default.
    """
    import signal

    if "ACCEL_RANK" not in os.environ:
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # not the main thread
        return False
    return True


def _give_interrupt_back() -> None:
    import signal

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        except ValueError:
            pass


class Job:
    """One process's part of a job. Made by accel_slurm.job.

    One thread uses it. "Collective" means that every rank makes the call, in the same
    order as its other calls of the job. A collective call raises Error where another
    rank has died.

    Attributes:
        directory: where the program keeps its checkpoints.
        restart: 0 in the first attempt, and one more after each restart.
        run_id: a name that is the same in all attempts and on all ranks, for trackers.
        resume: what the user asked for with --accel-resume ("auto", "none", a path);
            None: nothing.
        stopping: whether all ranks have agreed to stop.
    """

    def __init__(self, directory: str, log: LogFunction | None) -> None:
        self.directory = directory
        self.resume = os.environ.get("ACCEL_RESUME") or None
        self.stopping = False
        self._rank = _number("RANK", 0)
        self._size = _number("WORLD_SIZE", 1)
        self._process = os.getpid()
        self._log = log
        self._ranks: Ranks | None = None
        self._failure: BaseException | None = None
        self._step = -1  # of the last save that was asked for since the stop
        self._closed = False
        self._library = _lib.library()
        # The library keeps the addresses of these two.
        self._log_callback = _lib.Log(self._on_log)
        self._agree_callback = _lib.Agree(self._on_agree)
        self._interrupt = _take_interrupt()
        self._attempt = ctypes.c_void_p()
        self._open()
        self.restart: int = self._library.accel_attempt_restart(self._attempt)
        run_id: bytes = self._library.accel_attempt_run_id(self._attempt)
        self.run_id = run_id.decode(errors="replace")

    def _open(self) -> None:
        report = _lib.Report()
        status = self._library.accel_attempt_open(
            os.fsencode(self.directory),
            self._rank,
            self._size,
            int(self._interrupt),
            self._log_callback,
            None,
            ctypes.byref(self._attempt),
            ctypes.byref(report),
        )
        if status != _lib.OK and self._interrupt:
            _give_interrupt_back()
        if status in (_lib.STOPPED, _lib.RESUME):
            self._exit(status, report)
        if status != _lib.OK:
            raise _lib.error_of(status, report)
        if self._size > 1:
            self._library.accel_attempt_agree_by(
                self._attempt, self._agree_callback, None
            )

    def _on_log(self, _user: Any, level: int, line: bytes) -> None:
        number, prefix = _LEVELS.get(level, (10, ""))
        text = line.decode(errors="replace")
        if self._log is not None:
            self._log(number, text)
        elif level <= _lib.LOG_WARN or (level == _lib.LOG_INFO and self._rank == 0):
            _say(prefix + text)

    def _on_agree(self, _user: Any, values: Any, count: int) -> int:
        # Nothing may be raised through C: it is kept, and _call raises it.
        try:
            agreed = self._all().agree(values[:count])
        except BaseException as error:  # noqa: BLE001
            self._failure = error
            return _lib.PEER
        for i, value in enumerate(agreed):
            values[i] = value
        return _lib.OK

    def _all(self) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks(self._rank, self._size)
        return self._ranks

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise Error(
                _lib.INVAL,
                "the job is finished",
                "call job.finish() last, or open the directory again with "
                "accel_slurm.job",
                call,
            )
        if os.getpid() != self._process:
            raise Error(
                _lib.INVAL,
                "the job is another process's: this one was forked from it",
                "leave the job to the process that opened it",
                call,
            )

    def _call(self, name: str, *arguments: Any) -> int:
        """Calls the library; raises what a callback or the library failed with."""
        report = _lib.Report()
        self._failure = None
        status: int = getattr(self._library, "accel_attempt_" + name)(
            self._attempt, *arguments, ctypes.byref(report)
        )
        failure, self._failure = self._failure, None
        if status in (_lib.STOPPED, _lib.RESUME):
            self._close()
            self._exit(status, report)
        if status != _lib.OK:
            raise failure or _lib.error_of(status, report)
        return status

    def _exit(self, status: int, report: _lib.Report) -> None:
        """Ends the program as told; rank 0 knows why and what comes next."""
        if report.text:
            _say(report.text.decode(errors="replace"))
        if report.hint:
            _say("  " + report.hint.decode(errors="replace"))
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        code = EXIT_RESUME if status == _lib.RESUME else EXIT_STOPPED
        keep_exit_code(code)
        raise SystemExit(code)

    def _close(self) -> None:
        global _current
        self._closed = True
        # destroy_process_group then ends the group's threads; one that outlives it may
        # come upon an interpreter that is at its end, and abort.
        self._ranks = None
        self._library.accel_attempt_close(self._attempt)
        self._attempt = ctypes.c_void_p()
        if self._interrupt:
            _give_interrupt_back()
        _current = None

    def _agree(self, values: Sequence[int]) -> Sequence[int]:
        """The largest of each of up to eight values over all ranks. Collective."""
        self._check_open("Job._agree")
        return self._all().agree(values) if self._size > 1 else values

    def should_stop(self) -> bool:
        """Whether the job was told to stop. To be called once per step. Collective.

        The same on all ranks, at the same call: some rank has received SIGTERM, the
        warning signal or, below a launcher, Ctrl-C. The program then saves, leaves its
        loop and calls finish. Once true it stays true. It stays false as soon as a rank
        has called finish: the others then run to their end as well.

        The first call makes a process group of its own. No device waits for it.
        """
        self._check_open("Job.should_stop")
        if self.stopping:
            return True
        vote: int = self._library.accel_attempt_vote(self._attempt)
        if self._size > 1:
            vote = (self._ranks or self._all()).step(vote)
        if vote:
            self._library.accel_attempt_agreed(self._attempt, vote)
            self.stopping = True
        return self.stopping

    def save(self, step: int, fn: Callable[[], object]) -> bool:
        """Saves the state of `step` by calling fn(), on all ranks. Collective.

        To be used for all saves: how long they take is measured, and decides at a stop
        whether there is time for one more. fn writes the checkpoint so that it is whole
        or not there (under another name, then renamed).

        Returns False, without calling fn, at a stop that leaves no time for it: a
        line in the log says so, and the last checkpoint stays the one to resume from.
        """
        self._check_open("Job.save")
        if self.stopping:
            self._step = step
        allowed = ctypes.c_int()
        self._call("save_begin", step, ctypes.byref(allowed))
        if not allowed.value:
            return False
        fn()
        self._call("note_save", step)
        return True

    def finish(self) -> None:
        """Ends the job: the last call of every rank, also of one without a step.

        Returns once all ranks have called it, and the job is closed. After a stop it
        does not return: it asks Slurm for a requeue, rank 0 says what comes next, and it
        raises SystemExit: 85, the job comes back; 75, it does not. Collective. A second
        call does nothing.
        """
        if self._closed:
            return
        self._check_open("Job.finish")
        if self.stopping:
            self._call("stop", self._step)
        elif self._ranks is not None or (self._size > 1 and group_is_ready()):
            self._all().finish()
        self._close()

    def seconds_left(self) -> float:
        """Seconds until something ends this process, as far as is known; else inf."""
        self._check_open("Job.seconds_left")
        left: float = self._library.accel_attempt_seconds_left(self._attempt)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Calls finish, but not where an exception leaves the block."""
        if kind is None:
            self.finish()

    def _at_exit(self) -> None:
        if self.stopping and not self._closed and os.getpid() == self._process:
            _say(
                "warning: the job was told to stop, but the program has ended without "
                "job.finish(): nothing asks for its restart. Call it after the last save"
            )


_current: Job | None = None


def _warn_of_handler(job: Job) -> None:
    import signal

    if callable(signal.getsignal(signal.SIGTERM)) and job._rank == 0:
        _say(
            "warning: the program handles SIGTERM itself, so a preemption by SIGTERM "
            "will not stop the job; remove that handler and ask job.should_stop()"
        )


def _warn_of_notebook(job: Job) -> None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel") or "SLURM_JOB_ID" not in os.environ:
        return
    if job._rank == 0:
        _say(
            "warning: in a notebook a stop ends the cell and not the kernel, and at "
            "SIGTERM Jupyter may end the kernel before the state is saved; run what is "
            "to come back as a script (jupyter nbconvert --to script)"
        )


def job(directory: str | os.PathLike[str], *, log: LogFunction | None = None) -> Job:
    """Begins this process's part of a job, and returns it.

    Args:
        directory: where the program keeps its checkpoints, the same for all attempts of
            the job; rank 0 makes it and locks it.
        log: called with a level of `logging` and a line (logging.getLogger().log fits);
            without it rank 0's lines, and warnings of all ranks, go to stderr.

    The rank and the number of ranks come from RANK and WORLD_SIZE, as srun, accel launch
    and torchrun set them; without them the process is alone. A second call with the
    same directory returns the same job.

    Handlers for SIGTERM and the warning signal are installed where the program has
    none, data loaders are told to protect their workers, and an exception that ends the
    program is noted for srun. Not collective.

    Raises:
        Error: another run uses the directory, or it cannot be written.
        LibraryMissing: libacceljob is not there.
        SystemExit: 75, three attempts in a row saved nothing or max_restarts is
            reached; 85, a stop came first.
    """
    global _current
    path = os.path.abspath(os.fspath(directory))
    if _current is not None and _current._process == os.getpid():
        if os.path.realpath(path) == os.path.realpath(_current.directory):
            return _current
        raise Error(
            _lib.INVAL,
            f"this process has a job in {_current.directory} already",
            "use one directory per run, or finish that job first",
            path,
        )
    import atexit

    from . import failures, workers

    failures.install()  # also for what this call raises
    forget_exit_code()  # that of a job before, whose SystemExit the program has caught
    opened = Job(path, log)
    _current = opened
    atexit.register(opened._at_exit)
    _warn_of_handler(opened)
    _warn_of_notebook(opened)
    workers.install()
    return opened
