# SPDX-License-Identifier: Apache-2.0
"""accel.json: what makes a checkpoint of the Trainer whole.

The file lists every other file of the checkpoint with its size and 64-bit XXH3. It is
written last, when all of them are on disk, and appears under its name at once. So a
checkpoint without it was cut short, and one that differs from it is damaged. Needs no
torch.
"""

from __future__ import annotations

import errno
import json
import os
import re

from ._lib import Error, hash_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

NAME = "accel.json"
FORMAT = 1

_NUMBERS = ("step", "ranks", "batch", "accumulation")
_HASH = re.compile("[0-9a-f]{16}")
_THREADS = 8  # hashing and fsync wait for the disk, and neither holds the GIL


class Torn(Exception):
    """The checkpoint is not whole; the text says why."""


def files_of(directory: str) -> list[str]:
    """Paths relative to `directory` of all files below it but the marker, sorted.

    OSError: a directory cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    found = []
    for folder, _, names in os.walk(directory, onerror=fail):
        for name in names:
            found.append(os.path.relpath(os.path.join(folder, name), directory))
    return sorted(set(found) - {NAME, NAME + ".new"})


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no fsync of a directory.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _each(action: Any, arguments: Iterable[str]) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(action, arguments))


def sync_files(directory: str, names: Iterable[str]) -> None:
    """Brings these files of `directory` to the disk. OSError: one of them is not."""
    _each(lambda name: _sync(os.path.join(directory, name)), names)


def sync_of_rank(directory: str, rank: int) -> None:
    """Brings to the disk what `rank` has written into `directory`, by the file names.

    A client of Lustre keeps what it wrote until it is told: another node's fsync does
    nothing for it. Frameworks put the rank into the names of what each rank writes
    (rng_state_3.pth, __3_0.distcp). OSError: a file is not on the disk.
    """
    names = [name for name in files_of(directory) if _names_rank(name, rank)]
    sync_files(directory, names)


def _names_rank(name: str, rank: int) -> bool:
    return any(int(digits) == rank for digits in re.findall("[0-9]+", name))


def _hashes(directory: str, names: Iterable[str]) -> list[tuple[int, int]]:
    return _each(lambda name: hash_file(os.path.join(directory, name)), names)


def remove(directory: str) -> None:
    """The checkpoint is about to change: from now on it is not whole.

    OSError: the marker is there and cannot be removed.
    """
    try:
        os.unlink(os.path.join(directory, NAME))
    except FileNotFoundError:
        return
    _sync(directory)


def write(directory: str, facts: dict[str, Any]) -> None:
    """Makes the checkpoint in `directory` whole. Every rank has written its files.

    facts: step, run_id, training (which train() of the program with this output_dir,
    from 1), ranks, batch (samples per device), accumulation (batches per step), and
    evaluate, whether an evaluation of this step is still to come.
    OSError, Error: a file cannot be read or written; the checkpoint has no marker then.
    """
    names = files_of(directory)
    sync_files(directory, names)
    folders = {os.path.dirname(os.path.join(directory, name)) for name in names}
    folders |= {directory, os.path.dirname(os.path.abspath(directory))}
    _each(_sync, sorted(folders))
    files = {
        name: [size, f"{value:016x}"]
        for name, (size, value) in zip(names, _hashes(directory, names))
    }
    text = json.dumps({"format": FORMAT, **facts, "files": files}, indent=1) + "\n"
    path = os.path.join(directory, NAME)
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    except OSError:
        try:
            os.unlink(path + ".new")
        except OSError:
            pass  # the first error is the one that tells
        raise
    _sync(directory)


def _inside(name: str) -> bool:
    parts = name.split("/")
    return not os.path.isabs(name) and ".." not in parts and "" not in parts


def _checked(marker: Any) -> dict[str, Any]:
    """The marker, when its form is that of write()."""
    if not isinstance(marker, dict):
        raise Torn(f"{NAME} is not an object")
    if marker.get("format") != FORMAT:
        raise Torn(
            f"{NAME} has format {marker.get('format')!r}, this accel_slurm reads {FORMAT}"
        )
    for key in _NUMBERS:
        if type(marker.get(key)) is not int or marker[key] < 0:
            raise Torn(f"{NAME} has no number '{key}'")
    files = marker.get("files")
    if not isinstance(files, dict) or not files:
        raise Torn(f"{NAME} lists no files")
    for name, entry in files.items():
        if not (
            _inside(name)
            and isinstance(entry, list)
            and len(entry) == 2
            and type(entry[0]) is int
            and isinstance(entry[1], str)
            and _HASH.fullmatch(entry[1])
        ):
            raise Torn(f"{NAME} has a bad entry for {name!r}")
    return marker


def read(directory: str) -> dict[str, Any]:
    """The marker's content; the files themselves are not looked at. Torn: there is none."""
    try:
        with open(os.path.join(directory, NAME), encoding="utf-8") as file:
            return _checked(json.load(file))
    except FileNotFoundError:
        raise Torn(f"it has no {NAME}, which is written last") from None
    except OSError as error:
        raise Torn(f"{NAME} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Torn(f"{NAME} is not JSON: {error}") from None


def check(directory: str) -> dict[str, Any]:
    """The marker of a checkpoint of which every file is as it was written.

    Reads all of them. Torn: one of them is missing, cannot be read, or differs.
    """
    marker = read(directory)
    files = marker["files"]
    for name, (size, _) in files.items():
        try:
            found = os.stat(os.path.join(directory, name)).st_size
        except OSError as error:
            raise Torn(f"{name}: {error.strerror}") from None
        if found != size:
            raise Torn(f"{name} has {found} bytes of {size}")
    try:
        hashes = _hashes(directory, files)
    except Error as error:
        raise Torn(str(error)) from None
    for (name, (size, wanted)), (found, value) in zip(files.items(), hashes):
        if found != size or f"{value:016x}" != wanted:
            raise Torn(f"{name} has other bytes than were written")
    return marker
