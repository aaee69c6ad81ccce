# SPDX-License-Identifier: Apache-2.0
"""One call of Trainer.train(): what accel hooks into it, and takes out at its end.

All hooks are attributes of the one Trainer object, so that they stand before what a
subclass overrides.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import marker
from ._choice import Choice, Form, checkpoints
from ._lib import PEER, Error
from .job import EXIT_RESUME, _say, job

if TYPE_CHECKING:
    from .job import Job

# What is lost without a hook of transformers 5.
_HOOKS = {
    "_evaluate": "a stop waits for the end of an evaluation",
    "_load_rng_state": "an evaluation that a stop has cut short is not made up for",
    "_run_epoch": "a training that was complete when it stopped is one step longer",
}

# How many trainings this process has begun in each output_dir.
_begun: dict[str, int] = {}


class _Partial(Exception):
    """What the script has saved is no checkpoint of a Trainer. Raised on all ranks."""


class _Complete(Exception):
    """The evaluation that was still to come has ended the training."""


def _random_states() -> Callable[[], None]:
    """Keeps the states of the random number generators; the result restores them."""
    import random

    import torch

    python, cpu = random.getstate(), torch.get_rng_state()
    cuda: Any = torch.cuda
    devices = cuda.get_rng_state_all() if cuda.is_initialized() else None
    numpy = sys.modules.get("numpy")
    arrays = numpy.random.get_state() if numpy else None

    def restore() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        if numpy:
            numpy.random.set_state(arrays)

    return restore


@functools.lru_cache(maxsize=None)
def _name_processor(place: str) -> None:
    """Lets torch.load find `place`: on CPUs transformers 4 loads to "cpu:RANK"."""
    if not place.startswith("cpu:"):
        return
    from torch.serialization import register_package

    def load(storage: Any, location: str) -> Any:
        return storage if location == place else None

    # Before torch's own, some of which fail for a name that they do not know.
    register_package(5, lambda storage: None, load)


def _callback(training: Training) -> Any:
    from transformers.trainer_callback import TrainerCallback

    class AccelCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Asks at every step whether to stop; the last of the Trainer's callbacks."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.on_train_begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            training.on_step_end(control)

        def on_prediction_step(
            self, args: Any, state: Any, control: Any, **_: Any
        ) -> None:
            training.on_prediction_step()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if training.job.stopping:
                training.stop()

    return AccelCallback()


class Training:
    """The job of one train(). Its methods are called on all ranks alike.

    Args:
        ignored: train()'s ignore_keys_for_eval.
    """

    def __init__(self, trainer: Any, ignored: list[str] | None) -> None:
        self._trainer = trainer
        self._ignored = ignored
        self.job: Job = job(trainer.args.output_dir)
        self._place = os.path.realpath(self.job.directory)
        self._is_first = not any(_begun.values())
        self._number = _begun[self._place] = _begun.get(self._place, 0) + 1
        self._checks = bool(trainer.args.should_save)
        self._originals: dict[str, Any] = {}
        self._before: dict[str, Any] = {}  # what the object itself had
        self._first = 0  # the step this attempt begins with
        self._handler = _callback(self)
        self._partial = False  # a line has said that the script saves no checkpoints
        self._due = False  # the evaluation of the present step is still to come
        self._restore: Callable[[], None] | None = None  # during an evaluation

    # ---- hooks ----

    def attach(self) -> None:
        """Hooks in. What this transformers lacks costs a line."""
        trainer = self._trainer
        self._hook("_save_checkpoint", self._save)
        for name, loss in _HOOKS.items():
            if hasattr(trainer, name):
                self._hook(name, getattr(self, "_hooked" + name))
            elif trainer.args.process_index == 0:
                _say(f"warning: this transformers has no Trainer.{name}: {loss}")
        trainer.add_callback(self._handler)

    def _hook(self, name: str, hook: Callable[..., Any]) -> None:
        self._originals[name] = getattr(self._trainer, name)
        self._before[name] = self._trainer.__dict__.get(name)
        setattr(self._trainer, name, hook)

    def forget(self) -> None:
        """The program goes on after all, and its next train() is this one again."""
        _begun[self._place] -= 1

    def detach(self) -> None:
        """Leaves the Trainer as it was. Not collective."""
        for name, before in self._before.items():
            delattr(self._trainer, name)
            if before is not None:
                setattr(self._trainer, name, before)
        handler = self._trainer.callback_handler
        handler.callbacks = [
            one for one in handler.callbacks if one is not self._handler
        ]

    # ---- resume ----

    def _warn(self, text: str) -> None:
        if self._trainer.args.process_index == 0:
            _say("warning: " + text)

    def _warn_of_arguments(self) -> None:
        if self._number > 1:
            self._warn(
                f"this is train() number {self._number} with output_dir "
                f"{self.job.directory}: if the job comes back, a training whose "
                "checkpoints a later one has replaced begins at step 0; give each an "
                "output_dir of its own"
            )
        if getattr(self._trainer.args, "save_only_model", False):
            self._warn(
                "save_only_model leaves out the optimizer and the random numbers: a "
                "training that is resumed does not end where an undisturbed one does"
            )

    def _form(self) -> Form:
        args = self._trainer.args
        batch = int(args.per_device_train_batch_size)
        return Form(
            args.world_size,
            -1 if getattr(args, "auto_find_batch_size", False) else batch,
            args.gradient_accumulation_steps,
        )

    def begin(self, wanted: Any) -> Any:
        """What train() is to resume from, for what the script has asked for."""
        trainer = self._trainer
        _name_processor(str(getattr(trainer.args, "device", "")))
        self._warn_of_arguments()
        choice = Choice(self.job, self._checks, _say, self._number, self._is_first)
        if wanted is None or wanted is False:
            path, self._due = choice.find(self._form())
            if path is not None and trainer.args.process_index == 0:
                _say(f"resuming from {path}")
            return path
        if wanted is True:
            found = checkpoints(trainer.args.output_dir)
            if found:
                self._due = choice.of_script(found[0][1])
        else:
            self._due = choice.of_script(wanted)
        return wanted

    def on_train_begin(self) -> None:
        state = self._trainer.state
        self._first = state.global_step
        if self._complete() and self._due:
            self._replay()

    def _complete(self) -> bool:
        state = self._trainer.state
        return bool(0 < state.max_steps <= state.global_step)

    def _hooked_run_epoch(self, *arguments: Any, **named: Any) -> None:
        # The Trainer asks only after a step whether it was the last one.
        trainer = self._trainer
        if self._complete():
            trainer.control.should_training_stop = True
            return
        with contextlib.suppress(_Complete):
            self._originals["_run_epoch"](*arguments, **named)

    def _hooked_load_rng_state(self, *arguments: Any, **named: Any) -> None:
        self._originals["_load_rng_state"](*arguments, **named)
        if self._due:
            self._replay()
            ends = self._trainer.control.should_training_stop
            if ends and "_run_epoch" in self._originals:
                raise _Complete

    def _replay(self) -> None:
        """Makes the evaluation that the checkpoint still owes.

        It draws random numbers, and decides which model is the best and when to end:
        without it the training would not be the one that nobody has stopped.
        """
        trainer = self._trainer
        self._due = False
        evaluate = getattr(trainer, "_evaluate", None)
        if evaluate is None:
            return
        metrics = evaluate(None, self._ignored)
        best = getattr(trainer, "_determine_best_metric", None)
        if best is not None and best(metrics=metrics, trial=None):
            trainer.state.best_model_checkpoint = self._directory()

    # ---- stop ----

    def _evaluation_due(self, control: Any) -> bool:
        args, epoch = self._trainer.args, self._trainer.state.epoch
        # Its name before transformers 4.41 was another one.
        strategy = getattr(args, "eval_strategy", None) or args.evaluation_strategy
        strategy = getattr(strategy, "value", strategy)
        if strategy == "epoch" and epoch == int(epoch):
            return bool(args.eval_delay <= epoch)
        return bool(control.should_evaluate)

    def on_step_end(self, control: Any) -> None:
        # After the last step no rank asks: the training ends in any case.
        if self._complete() or not self.job.should_stop():
            return
        self._due = self._evaluation_due(control)
        control.should_save = True
        control.should_training_stop = True
        control.should_evaluate = False

    def _hooked_evaluate(self, *arguments: Any, **named: Any) -> Any:
        self._restore = _random_states()
        try:
            return self._originals["_evaluate"](*arguments, **named)
        finally:
            self._restore = None

    def on_prediction_step(self) -> None:
        # In an evaluation all ranks take the same number of steps: the Trainer gathers
        # the losses in each of them.
        if self._restore is None or not self.job.should_stop():
            return
        trainer = self._trainer
        if trainer.state.global_step > self._first:
            self._restore()
            self._due = True
            trainer._save_checkpoint(trainer.model, trial=None)
            trainer.callback_handler.on_save(
                trainer.args, trainer.state, trainer.control
            )
        self.stop()

    def stop(self) -> None:
        """Job.finish; where the job does not come back by itself, says how it resumes."""
        try:
            self.job.finish()
        except SystemExit as end:
            by_hand = end.code != EXIT_RESUME or "SLURM_JOB_ID" not in os.environ
            if by_hand and self.job.resume != "auto" and self.job._rank == 0:
                _say(
                    "  a Trainer resumes with --accel-resume=auto (ACCEL_RESUME=auto "
                    "without srun), else it begins at step 0"
                )
            raise

    # ---- save ----

    def _directory(self) -> str:
        trainer = self._trainer
        folder = f"checkpoint-{trainer.state.global_step}"
        return os.path.join(trainer.args.output_dir, folder)

    def _save(self, *arguments: Any, **named: Any) -> None:
        """Trainer._save_checkpoint, which leaves a whole checkpoint or none."""
        original = self._originals["_save_checkpoint"]
        step = self._trainer.state.global_step
        saved = False
        try:
            saved = self.job.save(step, lambda: self._write(original, arguments, named))
        except _Partial:
            if not self._partial:
                self._warn(
                    f"{self._directory()} has no trainer_state.json: the script saves in "
                    "a way of its own, and accel does not resume from that"
                )
            self._partial = True
        if self.job.stopping and not saved:
            # The Trainer must not go on as if it had saved.
            self.stop()

    def _write(self, original: Callable[..., Any], arguments: Any, named: Any) -> None:
        trainer, directory = self._trainer, self._directory()
        if self._checks:
            marker.remove(directory)
        with self._no_rotation():
            original(*arguments, **named)
        # Until all have written, there are files of other ranks that will not stay.
        state = os.path.join(directory, "trainer_state.json")
        if self.job._agree([int(self._checks and not os.path.exists(state))])[0]:
            raise _Partial
        self._together(
            lambda: marker.sync_of_rank(directory, trainer.args.process_index)
        )
        self._together(lambda: self._mark(directory))
        if self._checks:
            self._rotate(directory)

    def _together(self, action: Callable[[], None]) -> None:
        """action() on all ranks, and none goes on before all have done it."""
        failure: Exception | None = None
        try:
            action()
        except (OSError, Error) as error:
            failure = error
        if self.job._agree([1 if failure else 0])[0]:
            raise failure or Error(
                PEER,
                "another rank could not write its part of the checkpoint",
                "its message says why",
                self._directory(),
            )

    def _mark(self, directory: str) -> None:
        if not self._checks:
            return
        args = self._trainer.args
        batch = int(args.per_device_train_batch_size)
        facts = {
            "step": self._trainer.state.global_step,
            "run_id": self.job.run_id,
            "training": self._number,
            "ranks": args.world_size,
            "batch": batch,
            "accumulation": args.gradient_accumulation_steps,
            "evaluate": self._due,
        }
        marker.write(directory, facts)

    @contextlib.contextmanager
    def _no_rotation(self) -> Iterator[None]:
        """The Trainer deletes old checkpoints before the new one is whole: not here."""
        owner: Any = sys.modules.get("transformers.trainer")
        name = "rotate_checkpoints"
        if not hasattr(owner, name):  # transformers 4
            owner, name = self._trainer, "_rotate_checkpoints"
        before = vars(owner).get(name)
        setattr(owner, name, lambda *_, **__: None)
        try:
            yield
        finally:
            delattr(owner, name)
            if before is not None:
                setattr(owner, name, before)

    def _rotate(self, newest: str) -> None:
        """Deletes what exceeds save_total_limit, first what nothing can resume from.

        The one before the newest stays as well: should the newest be damaged, the
        training has it to fall back to.
        """
        import shutil

        limit = self._trainer.args.save_total_limit
        if not limit or limit <= 0:
            return
        best = self._trainer.state.best_model_checkpoint
        kept = {os.path.realpath(path) for path in (newest, best) if path}
        present = self._trainer.state.global_step
        found = checkpoints(os.path.dirname(newest))

        def worth(entry: Any) -> Any:
            step, path = entry
            whole = os.path.exists(os.path.join(path, marker.NAME))
            return whole and step <= present, step

        excess = len(found) - max(limit, 2)
        for _, path in sorted(found, key=worth):
            if excess > 0 and os.path.realpath(path) not in kept:
                shutil.rmtree(path, ignore_errors=True)
                excess -= 1
