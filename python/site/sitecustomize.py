# SPDX-License-Identifier: Apache-2.0
"""Makes the Trainer of an unchanged script stop and resume (accel.python.trainer).

srun puts the folder of this file first on PYTHONPATH. Python imports it at its start,
so it does next to nothing: it waits for the modules that accel_slurm changes, and then
runs the sitecustomize that it hides. No failure in here may harm a program.
"""

import os
import sys


def _install_trainer(module):
    from accel_slurm.trainer import install

    install(module)


def _install_shields(module):
    from accel_slurm import failures, workers

    failures.install()
    workers.install()


def _attempt(action, module):
    """action(module), with accel_slurm from where it is installed, or a line on stderr."""
    try:
        try:
            action(module)
        except ModuleNotFoundError as error:
            if error.name != "accel_slurm":
                raise
            here = os.path.dirname(os.path.realpath(__file__))
            sys.path.append(os.path.join(os.path.dirname(here), "python"))
            action(module)
    except Exception as error:  # noqa: BLE001
        try:
            print(
                f"accel: warning: {module.__name__} is left as it is: {type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )
        except Exception:  # noqa: BLE001, S110
            pass  # stderr is closed


class _Finder:
    """Calls an action with a module right after the module's own code has run."""

    def __init__(self, actions):
        self.actions = actions
        self.asked = set()  # others ask all finders, too, and so this one again

    def find_spec(self, name, path=None, target=None):
        if name not in self.actions or name in self.asked:
            return None
        self.asked.add(name)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    self._wrap(name, spec.loader)
                    return spec
        finally:
            self.asked.discard(name)
        return None

    def _wrap(self, name, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            loader.exec_module = execute
            execute(module)
            # Not before: many only ask whether there is such a module (find_spec).
            action = self.actions.pop(name, None)
            if action is not None:
                _attempt(action, module)

        loader.exec_module = exec_module


def _run_hidden():
    """Runs the next sitecustomize of sys.path in place of this one: Debian's, conda's."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.realpath(__file__))
    folders = [os.path.realpath(path or ".") for path in sys.path]
    after = folders.index(here) + 1 if here in folders else 0
    others = [sys.path[i] for i in range(after, len(folders)) if folders[i] != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)  # its errors are its own


if os.environ.get("ACCEL_PYTHON_TRAINER") == "1":
    sys.meta_path.insert(
        0,
        _Finder(
            {
                "torch": _install_shields,
                "transformers.trainer": _install_trainer,
            }
        ),
    )
_run_hidden()
