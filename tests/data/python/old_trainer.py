# SPDX-License-Identifier: Apache-2.0
"""A Trainer as it may have been, or may become: it lacks what accel hooks into.

    old_trainer.py DIRECTORY WAY [MISSING]...

WAY: `installed`, as by accel.python.trainer, or `hand`, by accel_slurm.trainer. It
takes SIGTERM in its third step. Without `eval_strategy` that has its older name. Stands in for transformers; needs no torch.
"""

import os
import signal
import sys
import types


class TrainerCallback:
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)


class JITCheckpointCallback(TrainerCallback):
    def __init__(self):
        self.jit_manager = types.SimpleNamespace()
        before = signal.signal(signal.SIGTERM, lambda *_: print("its own handler"))
        self.jit_manager._original_sigterm_handler = before


class Trainer:
    def __init__(self, directory):
        self.args = types.SimpleNamespace(
            output_dir=directory, should_save=True, process_index=0, world_size=1,
            per_device_train_batch_size=4, gradient_accumulation_steps=1,
            save_total_limit=1, eval_delay=0,
        )  # fmt: skip
        older = "eval_strategy" in sys.argv
        setattr(self.args, "evaluation_strategy" if older else "eval_strategy", "no")
        self.state = types.SimpleNamespace(
            global_step=0, max_steps=6, epoch=0.5, best_model_checkpoint=None
        )
        self.control = types.SimpleNamespace(
            should_save=False, should_training_stop=False, should_evaluate=False
        )
        handler = types.SimpleNamespace(callbacks=[JITCheckpointCallback()])
        self.callback_handler = handler

    def add_callback(self, callback):
        self.callback_handler.callbacks.append(callback)

    def _tell(self, event):
        for callback in self.callback_handler.callbacks:
            getattr(callback, event)(self.args, self.state, self.control)

    def _save_checkpoint(self, model, trial):
        path = os.path.join(self.args.output_dir, f"checkpoint-{self.state.global_step}")
        os.makedirs(path, exist_ok=True)
        for name in ("model", "trainer_state.json"):
            with open(os.path.join(path, name), "w") as file:
                file.write(name)

    def _evaluate(self, trial, ignored):
        return {}

    def _load_rng_state(self, checkpoint):
        pass

    def _run_epoch(self):
        while self.state.global_step < 6 and not self.control.should_training_stop:
            self.state.global_step += 1
            if self.state.global_step == 3 and not os.environ.get("ACCEL_RESUME"):
                os.kill(os.getpid(), signal.SIGTERM)
            self._tell("on_step_end")
            if self.control.should_save:
                self._save_checkpoint(None, None)
                self._tell("on_save")

    def _rotate_checkpoints(self):
        pass

    def train(self, resume_from_checkpoint=None, trial=None):
        print("resumes from", os.path.basename(resume_from_checkpoint or "nothing"))
        if resume_from_checkpoint:
            self.state.global_step = int(resume_from_checkpoint.split("-")[-1])
        self._tell("on_train_begin")
        run = self._run_epoch if hasattr(self, "_run_epoch") else self._steps
        run()
        return self.state.global_step

    _steps = _run_epoch


def main():
    directory, way, *missing = sys.argv[1:]
    for name in set(missing) - {"eval_strategy"}:
        delattr(Trainer, name)
    package = types.ModuleType("transformers")
    module = types.ModuleType("transformers.trainer_callback")
    module.TrainerCallback = TrainerCallback
    sys.modules["transformers"] = package
    sys.modules["transformers.trainer_callback"] = module
    import accel_slurm
    from accel_slurm.trainer import install

    if way == "installed":
        install(sys.modules[__name__])
        trainer = Trainer(directory)
    else:
        trainer = accel_slurm.trainer(Trainer(directory))
    print("ended at step", trainer.train())


main()
