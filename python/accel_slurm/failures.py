# SPDX-License-Identifier: Apache-2.0
"""The exception that ends a rank, noted for srun in $TORCHELASTIC_ERROR_FILE.

The file has the format of torch's ErrorHandler, with more in extraInfo: a finer time, the
exception's type, the file and line of the program it comes from, rank and host, and
whether it only says that another rank is gone.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_installed = False


def _libraries() -> list[str]:
    """Folders whose code is not the program's."""
    import sysconfig

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {sysconfig.get_path(name) for name in names}
    found.add(os.path.dirname(os.path.abspath(__file__)))
    return [os.path.join(path, "") for path in found if path]


def _place(trace: TracebackType | None) -> dict[str, Any]:
    """File and line of the innermost frame of the program; of all frames if none is."""
    import traceback

    frames = [(frame.f_code.co_filename, line) for frame, line in
              traceback.walk_tb(trace)]  # fmt: skip
    libraries = tuple(_libraries())
    own = [
        (name, line)
        for name, line in frames
        if not name.startswith("<")
        and not os.path.abspath(name).startswith(libraries)
        and "site-packages" not in name
        and "dist-packages" not in name
    ]
    for name, line in (own or frames)[-1:]:
        return {"file": name, "line": line}
    return {}


def _document(
    kind: type[BaseException],
    value: BaseException | None,
    trace: TracebackType | None,
) -> dict[str, Any]:
    import socket
    import time
    import traceback

    from ._lib import PEER, Error

    now = time.time_ns()
    extra = {
        "py_callstack": "".join(traceback.format_exception(kind, value, trace)),
        "timestamp": str(now // 1_000_000_000),
        "time_ns": now,
        "exception": kind.__name__,
        "rank": os.environ.get("RANK", "0"),
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
    }
    if isinstance(value, Error) and value.code == PEER:
        extra["blames_another"] = 1
    extra.update(_place(trace))
    text = "" if value is None else str(value)
    text = f"{kind.__name__}: {text}" if text else kind.__name__
    return {"message": {"message": text, "extraInfo": extra}}


def record(
    kind: type[BaseException],
    value: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Writes the exception to $TORCHELASTIC_ERROR_FILE, unless there is one already.

    Does nothing without the variable, and for SystemExit and KeyboardInterrupt. Never
    raises: what cannot be written is left out.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if not path or issubclass(kind, (SystemExit, KeyboardInterrupt)):
        return
    try:
        import json

        data = json.dumps(_document(kind, value, trace)).encode()
        os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except Exception:  # noqa: BLE001, S110
        # The exception itself must reach the user, whatever happens to its note.
        pass


def install() -> None:
    """Has uncaught exceptions of the main thread noted; the former hook still runs."""
    global _installed
    if _installed:
        return
    _installed = True
    former = sys.excepthook

    def hook(
        kind: type[BaseException],
        value: BaseException,
        trace: TracebackType | None,
    ) -> None:
        record(kind, value, trace)
        former(kind, value, trace)

    sys.excepthook = hook
