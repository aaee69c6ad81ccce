# SPDX-License-Identifier: Apache-2.0
"""libacceljob, the only library that this package loads, and how its errors are raised.

The library is looked for at the first use, so that a program which only imports the
package works without it.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # typing costs some milliseconds that an import need not take
if TYPE_CHECKING:
    from typing import Any

OK, UNAVAIL, PEER, RESUME, INVAL, STOPPED = 0, 4, 9, 12, 13, 19
LOG_WARN, LOG_INFO = 1, 2

Log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
Agree = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_int
)


class Report(ctypes.Structure):
    """accel_error_t."""

    _fields_ = [
        ("code", ctypes.c_int),
        ("message", ctypes.c_int),
        ("where", ctypes.c_char * 256),
        ("text", ctypes.c_char * 768),
        ("hint", ctypes.c_char * 384),
    ]


class Error(RuntimeError):
    """What went wrong, where, and the cure.

    Attributes:
        code: a status of accel.h (4 for ACCEL_EUNAVAIL).
        number: 301 for A0301, which `accel explain A0301` describes; 0: none.
        where: the file, or the call.
        text: one sentence.
        hint: the cure; may be empty.
    """

    def __init__(
        self, code: int, text: str, hint: str = "", where: str = "", number: int = 0
    ) -> None:
        head = f"A{number:04d}: " if number else ""
        place = where + ": " if where else ""
        cure = "\n  cure: " + hint if hint else ""
        super().__init__(head + place + text + cure)
        self.code = code
        self.number = number
        self.where = where
        self.text = text
        self.hint = hint

    def __reduce__(self) -> Any:
        return (
            type(self),
            (self.code, self.text, self.hint, self.where, self.number),
        )


class LibraryMissing(Error, ImportError):
    """libacceljob is not there, or of another version than this package."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(UNAVAIL, text, hint)

    def __reduce__(self) -> Any:
        return (type(self), (self.text, self.hint))


def error_of(status: int, report: Report) -> Error:
    """The exception for a status other than OK."""
    text = report.text.decode(errors="replace")
    return Error(
        status,
        text or "another rank has failed; its message says why",
        report.hint.decode(errors="replace"),
        report.where.decode(errors="replace"),
        report.message,
    )


def _declare(library: ctypes.CDLL) -> None:
    pointer, i64 = ctypes.c_void_p, ctypes.c_int64
    report = ctypes.POINTER(Report)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "attempt_open": (
            ctypes.c_int,
            [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, Log, pointer]
            + [ctypes.POINTER(pointer), report],
        ),
        "attempt_close": (None, [pointer]),
        "attempt_agree_by": (None, [pointer, Agree, pointer]),
        "attempt_vote": (i64, [pointer]),
        "attempt_agreed": (ctypes.c_int, [pointer, i64]),
        "attempt_seconds_left": (ctypes.c_double, [pointer]),
        "attempt_restart": (i64, [pointer]),
        "attempt_run_id": (ctypes.c_char_p, [pointer]),
        "attempt_save_begin": (
            ctypes.c_int,
            [pointer, i64, ctypes.POINTER(ctypes.c_int), report],
        ),
        "attempt_note_save": (ctypes.c_int, [pointer, i64, report]),
        "attempt_stop": (ctypes.c_int, [pointer, i64, report]),
        "shield_worker": (ctypes.c_int, [ctypes.c_int]),
        "hash_file": (
            ctypes.c_int,
            [ctypes.c_char_p, ctypes.POINTER(i64)]
            + [ctypes.POINTER(ctypes.c_uint64), report],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, "accel_" + name)
        function.restype = result
        function.argtypes = arguments


def _find() -> ctypes.CDLL:
    name = "libacceljob.so"
    root = os.environ.get("ACCEL_ROOT", "")
    places = [os.path.join(root, "lib", name)] if root else []
    places.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))
    path = next((place for place in places if os.path.exists(place)), name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        tried = ", ".join(places)
        raise LibraryMissing(
            f"{name} cannot be loaded ({error}); tried {tried}, then the loader's path",
            "run `module load accel`, or set ACCEL_ROOT to where accel is installed",
        ) from None
    try:
        _declare(library)
    except AttributeError as error:
        raise LibraryMissing(
            f"{path} does not fit this accel_slurm: {error}",
            "use the library and the package of one installation of accel",
        ) from None
    return library


def hash_file(path: str) -> tuple[int, int]:
    """The size in bytes and the 64-bit XXH3 of a file. Error: it cannot be read."""
    size, digest, report = ctypes.c_int64(), ctypes.c_uint64(), Report()
    status = library().accel_hash_file(
        os.fsencode(path),
        ctypes.byref(size),
        ctypes.byref(digest),
        ctypes.byref(report),
    )
    if status != OK:
        raise error_of(status, report)
    return size.value, digest.value


_loaded: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """libacceljob, loaded once. LibraryMissing: it is not there."""
    global _loaded
    if _loaded is None:
        _loaded = _find()
    return _loaded
