# SPDX-License-Identifier: Apache-2.0
"""transformers.Trainer, preempted and resumed without a change to the script.

install() changes the class, trainer() one object. Nothing of transformers or torch is
imported here: where this runs, the program has imported them.
"""

from __future__ import annotations

from ._lib import LibraryMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, TypeVar

    T = TypeVar("T")

# Without one of these the Trainer is left as it is.
_NEEDED = (
    "args",
    "state",
    "control",
    "callback_handler",
    "add_callback",
    "_save_checkpoint",
)


def _say(text: str) -> None:
    from .job import _say

    _say(text)


def _drop_jit(trainer: Any) -> None:
    """Removes JITCheckpointCallback and its handler: each rank would save for itself."""
    import signal

    handler = trainer.callback_handler
    for callback in list(handler.callbacks):
        if type(callback).__name__ != "JITCheckpointCallback":
            continue
        before = getattr(callback.jit_manager, "_original_sigterm_handler", None)
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        handler.callbacks.remove(callback)


def _prepare(trainer: Any) -> str:
    """Makes the Trainer ready for train(). Returns why that is impossible, or ""."""
    missing = [name for name in _NEEDED if not hasattr(trainer, name)]
    if missing:
        return f"this transformers has no Trainer.{missing[0]}"
    try:
        _drop_jit(trainer)
    except (AttributeError, TypeError, ValueError) as error:
        return f"its JITCheckpointCallback cannot be removed: {error}"
    return ""


def _train(
    trainer: Any,
    original: Callable[..., T],
    wanted: Any,
    arguments: Any,
    named: Any,
) -> T:
    """trainer.train(wanted, *arguments, **named), as a job that can be stopped."""
    from ._training import Training

    trial = arguments[0] if arguments else named.get("trial")
    if getattr(trainer, "_accel_training", None) is not None or trial is not None:
        if trial is not None:
            _say("warning: a hyperparameter search is not stopped and resumed by accel")
        return original(wanted, *arguments, **named)
    _drop_jit(trainer)  # the script may have added another one
    keys = arguments[1] if len(arguments) > 1 else named.get("ignore_keys_for_eval")
    training = Training(trainer, keys)
    trainer._accel_training = training
    try:
        training.attach()
        result = original(training.begin(wanted), *arguments, **named)
    except (SystemExit, KeyboardInterrupt):  # a notebook calls train() again
        training.forget()
        raise
    finally:
        training.detach()
        trainer._accel_training = None
    # What comes after train() is the script's own, and so is a signal that comes then.
    training.job.finish()
    return result


def trainer(trainer: T) -> T:
    """Makes trainer.train() stop, save and resume as a job of accel. Returns the Trainer.

    For scripts that do not set accel.python.trainer in the configuration, which does the
    same for every Trainer. To be called on all ranks, before train().

    At a stop all ranks save a checkpoint of the same step, and train() raises
    SystemExit: 85, the job comes back; 75, it does not. In a restarted attempt, or with
    --accel-resume=auto, train() without resume_from_checkpoint begins with the newest
    whole checkpoint-N of args.output_dir; checkpoints have a file accel.json then.

    Raises:
        Error: this transformers lacks what that needs.
    """
    import functools

    from . import _lib

    reason = _prepare(trainer)
    if reason:
        raise _lib.Error(
            _lib.INVAL,
            reason,
            "use a transformers that doc/python.md names, or a loop of your own",
            "accel_slurm.trainer",
        )
    original: Any = trainer.train  # type: ignore[attr-defined]

    @functools.wraps(original)
    def train(resume_from_checkpoint: Any = None, *arguments: Any, **named: Any) -> Any:
        return _train(trainer, original, resume_from_checkpoint, arguments, named)

    trainer.train = train  # type: ignore[attr-defined]
    return trainer


def install(module: ModuleType) -> None:
    """Does the same for every Trainer of transformers.trainer, which `module` is.

    What is missing costs a line on stderr, and the feature.
    """
    import functools

    cls: Any = getattr(module, "Trainer", None)
    if cls is None or not callable(getattr(cls, "train", None)):
        _say("warning: this transformers has no Trainer.train: it is left as it is")
        return
    initialise, original = cls.__init__, cls.train

    @functools.wraps(initialise)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        reason = _prepare(self)
        self._accel_left_alone = bool(reason)
        if reason:
            _say(f"warning: {reason}: the Trainer is left as it is")

    @functools.wraps(original)
    def train(
        self: Any, resume_from_checkpoint: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        plain = functools.partial(original, self)
        if not getattr(self, "_accel_left_alone", True):
            try:
                from . import _lib

                _lib.library()
            except LibraryMissing as error:
                _say(f"warning: the Trainer is left as it is: {error}")
            else:
                return _train(self, plain, resume_from_checkpoint, arguments, named)
        return plain(resume_from_checkpoint, *arguments, **named)

    cls.__init__, cls.train = __init__, train
