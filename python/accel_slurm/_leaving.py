# SPDX-License-Identifier: Apache-2.0
"""The exit code of a stop, which nothing that follows may change."""

from __future__ import annotations

import os
import sys


def keep_exit_code(code: int) -> None:
    """Lets this process end with `code`, once all exit handlers have run.

    Without this the teardown of the interpreter comes after them. A thread of gloo or
    NCCL that needs the interpreter then aborts the process: it ends with 134, and a job
    whose state is saved does not come back. (Seen in 3 of 150 stops on a busy machine.)
    """
    import atexit

    atexit.register(_end, os.getpid(), code)


def forget_exit_code() -> None:
    """Undoes keep_exit_code: the program lives on after all, as a notebook's kernel does."""
    import atexit

    atexit.unregister(_end)


def _end(process: int, code: int) -> None:
    import atexit

    # Handlers run in reverse order, so this one, registered last, is the first to run.
    # It runs the others itself, because there is no way to be the last.
    run_others = getattr(atexit, "_run_exitfuncs", None)
    if os.getpid() != process or run_others is None:
        return
    atexit.unregister(_end)
    try:
        run_others()
    except BaseException:  # noqa: BLE001, S110
        pass  # it has printed the traceback, as at every exit
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    import ctypes

    ctypes.CDLL(None).fflush(None)  # what C code has printed
    os._exit(code)
