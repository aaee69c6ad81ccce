# SPDX-License-Identifier: Apache-2.0
"""DataLoader workers that survive the signals which tell a job to stop.

Slurm sends SIGTERM to every process of a step. torch's worker would end by it, and its
parent with it, before anything is saved. So the parent blocks these signals while it
starts its workers, which inherit that; each worker then installs handlers after torch's
own, by which only its parent ends it, and unblocks them.
"""

from __future__ import annotations

import os
import sys

from . import _lib
from ._imports import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

_installed = False


def _warn(text: str) -> None:
    try:
        print("accel: warning: " + text, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass


class ShieldedInit:
    """A worker_init_fn that shields the worker, then calls the program's own."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        import multiprocessing
        import signal

        parent = multiprocessing.parent_process()
        try:
            number = _lib.library().accel_shield_worker(parent.pid if parent else 0)
            failure = os.strerror(number) if number else ""
        except _lib.Error as error:
            failure = str(error)
        if failure:
            _warn(f"data loader worker {worker} ends at the first SIGTERM: {failure}")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals())
        if self.own is not None:
            self.own(worker)


def _signals() -> Any:
    import signal

    return {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def _start_tracker(loader: Any) -> None:
    """Starts multiprocessing's resource tracker where the workers will need it.

    Python 3.11 and others unblock SIGTERM when they start it, which would otherwise
    happen between two workers.
    """
    import multiprocessing
    from multiprocessing import resource_tracker

    context = loader.multiprocessing_context or multiprocessing
    if context.get_start_method() != "fork":
        resource_tracker.ensure_running()


def _wrap(module: ModuleType) -> None:
    iterator = getattr(module, "_MultiProcessingDataLoaderIter", None)
    if iterator is None:
        _warn(
            "this torch has no torch.utils.data.dataloader."
            "_MultiProcessingDataLoaderIter: data loader workers end at the first "
            "SIGTERM; load without workers, or save often"
        )
        return
    initialise = iterator.__init__

    def __init__(self: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        import signal

        own = loader.worker_init_fn
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
        try:
            _start_tracker(loader)
            signal.pthread_sigmask(signal.SIG_BLOCK, _signals())
            loader.worker_init_fn = ShieldedInit(own)
            initialise(self, loader, *arguments, **named)
        finally:
            loader.worker_init_fn = own
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    iterator.__init__ = __init__


def install() -> None:
    """Shields the workers of all data loaders that are made from now on.

    Imports no torch: a program without it is not changed, and one that imports it later
    has its data loaders changed then. Without libacceljob nothing is changed, which one
    line says.
    """
    global _installed
    if _installed:
        return
    _installed = True

    def when(module: ModuleType) -> None:
        try:
            _lib.library()
        except _lib.Error as error:
            _warn(f"data loader workers end at the first SIGTERM: {error}")
            return
        _wrap(module)

    when_imported("torch.utils.data.dataloader", when)
