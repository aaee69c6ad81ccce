# SPDX-License-Identifier: Apache-2.0
"""Packs accel_slurm and libacceljob into a wheel, without a network and without pip.

Usage: wheel.py VERSION LIBRARY FOLDER    (run in the folder that has accel_slurm)

The library is the same for every Python, hence py3-none; it is of this machine's kind.
Prints the wheel's path.
"""

import base64
import glob
import hashlib
import os
import sys
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def described(version: str) -> str:
    """The wheel's METADATA. pyproject.toml is read line by line: 3.8 has no tomllib."""
    fields = {}
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        for line in file:
            name, equals, value = line.partition(" = ")
            if equals:
                fields.setdefault(name, value.strip().strip('"'))
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {fields['name']}\n"
        f"Version: {version}\n"
        f"Summary: {fields['description']}\n"
        f"License: {fields['license']}\n"
        f"Requires-Python: {fields['requires-python']}\n"
    )


def pack(version: str, library: str, folder: str) -> str:
    """Writes the wheel into `folder` and returns its path."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{platform}"
    info = f"accel_slurm-{version}.dist-info"
    contents = {}
    for source in sorted(glob.glob(os.path.join(HERE, "accel_slurm", "*.py"))):
        with open(source, "rb") as file:
            contents["accel_slurm/" + os.path.basename(source)] = file.read()
    contents["accel_slurm/py.typed"] = b""
    with open(library, "rb") as file:
        contents["accel_slurm/libacceljob.so"] = file.read()
    contents[f"{info}/METADATA"] = described(version).encode()
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: accel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    record = ""
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        record += f"{name},sha256={digest.decode()},{len(data)}\n"
    contents[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = os.path.join(folder, f"accel_slurm-{version}-{tag}.whl")
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            # A fixed date: the same source gives the same wheel.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, data)
    os.replace(path + ".new", path)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: wheel.py VERSION LIBRARY FOLDER")
    print(pack(*sys.argv[1:]))
