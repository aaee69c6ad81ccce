# SPDX-License-Identifier: Apache-2.0
"""Files below $ACCEL_STEP_REPORTS, by which a step tells srun what it has done."""

from __future__ import annotations

import os


def make_folder(path: str) -> None:
    """Makes the folder, for this user alone, and whatever is missing above it."""
    if path:
        os.makedirs(path, 0o700, exist_ok=True)


class JobReport:
    """The file `job`: which directory the job has opened, and which steps are saved.

    Nobody but srun reads it, and the job does not depend on it: what cannot be written
    is left out without a word.
    """

    def __init__(self, directory: str) -> None:
        self._folder = os.environ.get("ACCEL_STEP_REPORTS", "")
        self._opened = f"opened {directory}\n"
        self._saved = ""
        self._write()

    def saved(self, step: int) -> None:
        """The state of `step` is saved. Only the last one counts."""
        self._saved = f"saved {step}\n"
        self._write()

    def _write(self) -> None:
        if not self._folder:
            return
        path = os.path.join(self._folder, "job")
        try:
            make_folder(self._folder)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(self._opened + self._saved)
            os.replace(path + ".new", path)
        except OSError:
            pass
