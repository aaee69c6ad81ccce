# SPDX-License-Identifier: Apache-2.0
"""Changes to a module of another package, made when a program imports it and not before."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Sequence

    Action = Callable[[ModuleType], None]


class _Finder:
    """Runs the actions of a module right after its own code."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Action]] = {}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> Any:
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self._wrap(name, spec.loader)
                return spec
        return None

    def _wrap(self, name: str, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Not before: many only ask whether there is such a module (find_spec).
            for action in self.waiting.pop(name, []):
                action(module)

        loader.exec_module = exec_module


_finder = _Finder()


def when_imported(name: str, action: Action) -> None:
    """Calls action(module) when the module `name` has been imported: now, or later.

    What the action raises reaches the program's import statement; an action that must
    not harm a program catches it.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        action(module)
        return
    _finder.waiting.setdefault(name, []).append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
