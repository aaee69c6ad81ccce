#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# A second reader of checkpoints, written from doc/checkpoint-format.md alone; it shares no
# code with accel. In: the directory of a checkpoint, or of several. Out: its verdict, and the
# tensors as plain bytes. Never writes to a checkpoint. Needs Python 3.8 and python3-xxhash;
# `hdf5` needs h5py as well.
#
#   second_reader.py verify DIR        every hash of every file; exit 0, or 1 and the reason
#   second_reader.py manifest DIR      the MANIFEST and the sizes of the files only
#   second_reader.py extract DIR OUT   verify, then write OUT/tensors/NAME and OUT/blobs/NAME
#   second_reader.py newest ROOT       the checkpoint to resume from
#   second_reader.py hdf5 DIR          each box is a dataset of the shard file

import os
import re
import stat
import struct
import sys

import xxhash

VERSION = 1
MANIFEST_MAX = 268435456
BLOBS_MAX = 1073741824
PIECE = 1048576
I64_MAX = 2**63 - 1
U64 = 2**64
X_LINE = 35
DTYPES = {  # name: number, bytes
    "float32": (0, 4),
    "bfloat16": (1, 2),
    "int32": (2, 4),
    "uint16": (3, 2),
    "uint8": (4, 1),
    "float64": (5, 8),
    "int64": (6, 8),
    "float16": (7, 2),
    "e4m3": (8, 1),
    "e5m2": (9, 1),
    "int8": (10, 1),
}

FLOATS = {  # HDF5 floats: bytes, fields, bias
    "bfloat16": (2, (15, 7, 8, 0, 7), 127),
    "e5m2": (1, (7, 2, 5, 0, 2), 15),
}


class Refused(Exception):
    """What the page does not allow."""


class OtherVersion(Refused):
    """Not damaged: another reader's."""


def need(condition, what):
    if not condition:
        raise Refused(what)


def number(word, most=I64_MAX):
    need(re.fullmatch("0|[1-9][0-9]*", word), f"'{word}' is not a number")
    need(len(word) <= 19 and int(word) <= most, f"{word[:30]} is too large")
    return int(word)


def digest(word):
    need(re.fullmatch("[0-9a-f]{32}", word), f"'{word}' is not a hash")
    return word


def dims(word):
    if word == "-":
        return ()
    parts = word.split("x")
    need(len(parts) <= 8, "more than 8 dimensions")
    return tuple(number(p) for p in parts)


def text(value, most, first=33):
    need(1 <= len(value) <= most, "a header line has no value, or one that is too long")
    need(all(first <= ord(c) <= 126 for c in value), "a byte that is not printable")
    return value


def tensor_name(word):
    need(1 <= len(word) <= 511, "a name is empty or too long")
    need(all(33 <= ord(c) <= 126 and c != "@" for c in word), "a byte that no name has")
    need(all(p not in ("", ".", "..") for p in word.split("/")), "a bad part of a name")
    return word


def volume(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def pread_all(fd, count, at):
    parts = []
    while count > 0:
        part = os.pread(fd, min(count, 1 << 24), at)
        need(part, "a file is shorter than it was")
        parts.append(part)
        count -= len(part)
        at += len(part)
    return b"".join(parts)


def open_plain(directory, name):
    """A descriptor and the size of a regular file that is not a link."""
    try:
        fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as e:
        raise Refused(f"{name}: {e.strerror}") from e
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise Refused(f"{name} is not a regular file")
    return fd, info.st_size


class Box:
    def __init__(self, tensor, offset, shape, file, at, size):
        self.tensor, self.offset, self.shape = tensor, offset, shape
        self.file, self.at, self.bytes = file, at, size
        self.hashes = []

    def seed(self, step):
        """S of the page: the identity of the box."""
        t = self.tensor
        numbers = [step, int(t.blob), DTYPES[t.dtype][0], len(t.shape)]
        for group in (t.shape, self.offset, self.shape):
            numbers += list(group) + [0] * (8 - len(group))
        name = xxhash.xxh3_64_intdigest(t.name.encode("ascii"))
        return xxhash.xxh3_64_intdigest(struct.pack("<28q", *numbers), seed=name)


class Tensor:
    def __init__(self, name, dtype, shape, blob):
        self.name, self.dtype, self.shape, self.blob = name, dtype, shape, blob
        self.boxes = []

    def check(self):
        """The boxes lie inside the tensor and hold each element once."""
        size = DTYPES[self.dtype][1]
        need(volume([e for e in self.shape if e]) <= I64_MAX, f"{self.name} is too large")
        need(volume(self.shape) * size <= I64_MAX, f"{self.name} is too large")
        held = 0
        for b in self.boxes:
            need(all(b.shape), f"an empty box of {self.name}")
            need(all(o + s <= e for o, s, e in zip(b.offset, b.shape, self.shape)),
                 f"a box of {self.name} lies outside")
            need(b.bytes == volume(b.shape) * size, f"a box of {self.name} has odd bytes")
            held += volume(b.shape)
        need(held == volume(self.shape), f"{held} elements of {self.name} are stored")
        for i, a in enumerate(self.boxes):
            for b in self.boxes[i + 1:]:
                if not self.shape or b.offset[0] >= a.offset[0] + a.shape[0]:
                    break  # sorted: nor does any that follows
                need(any(p + m <= q or q + n <= p for p, m, q, n in
                         zip(a.offset, a.shape, b.offset, b.shape)),
                     f"boxes of {self.name} overlap")


class Manifest:
    """The MANIFEST of the page, or Refused."""

    def __init__(self, raw):
        need(len(raw) <= MANIFEST_MAX, "the MANIFEST is too long")
        head, last = raw[:-X_LINE], raw[-X_LINE:]
        need(re.fullmatch(rb"X [0-9a-f]{32}\n", last) and head.endswith(b"\n"),
             "the last line is not its hash")
        need(xxhash.xxh3_128_hexdigest(head).encode() == last[2:34], "its hash does not hold")
        need(all(c == 10 or 32 <= c <= 126 for c in head), "a byte that is not ASCII text")
        self.lines = head.decode("ascii").split("\n")[:-1]
        self.at = 0
        self.read_header()
        self.files = [self.read_file(r) for r in range(self.world)]
        self.tensors = []
        while self.at < len(self.lines):
            self.read_tensor()
        for t in self.tensors:
            t.check()
        need(sum(t.shape[0] for t in self.tensors if t.blob) <= BLOBS_MAX,
             "the blobs are too large")
        self.check_places()

    def line(self, keyword):
        """The rest of the next line if it has this keyword, else None."""
        if self.at == len(self.lines) or not self.lines[self.at].startswith(keyword + " "):
            return None
        self.at += 1
        return self.lines[self.at - 1][len(keyword) + 1:]

    def words(self, keyword, count):
        rest = self.line(keyword)
        if rest is None:
            return None
        words = rest.split(" ")
        need(len(words) == count and all(words), f"a '{keyword}' line of another form")
        return words

    def header(self, keyword):
        value = self.line(keyword)
        need(value is not None, f"no line '{keyword}' where it must be")
        return value

    def read_header(self):
        version = number(self.header("accel-checkpoint"), 2**31 - 1)
        if version != VERSION:
            raise OtherVersion(f"format {version}; this reader knows format {VERSION}")
        self.library = text(self.header("library"), 31)
        self.step = number(self.header("step"), 999999999999)
        self.world = number(self.header("world"), 99999)
        need(self.world >= 1, "no rank")
        self.owner = text(self.header("owner"), 63)
        self.sharding = text(self.header("sharding"), 63)
        self.run_id = text(self.header("run-id"), 1024, first=32)
        need(self.header("piece") == str(PIECE), "another piece size")

    def read_file(self, rank):
        words = self.words("F", 3)
        need(words, "fewer files than ranks")
        need(words[0] == f"rank_{rank:05d}-of-{self.world:05d}.h5", "a file of another name")
        return words[0], number(words[1]), digest(words[2])

    def read_tensor(self):
        if self.lines[self.at].startswith("S "):
            name, size = self.words("S", 2)
            t = Tensor(tensor_name(name), "uint8", (number(size),), True)
        else:
            shown = self.lines[self.at][:40]
            words = self.words("T", 3)
            need(words, f"unknown line '{shown}'")
            need(words[1] in DTYPES, f"unknown dtype {words[1]}")
            t = Tensor(tensor_name(words[0]), words[1], dims(words[2]), False)
        if self.tensors:
            before = self.tensors[-1]
            need((before.blob, before.name) < (t.blob, t.name), "tensors are not sorted")
        self.tensors.append(t)
        while True:
            words = self.words("B", 5)
            if words is None:
                break
            self.read_box(t, words)

    def read_box(self, t, words):
        offset, shape = dims(words[0]), dims(words[1])
        need(len(offset) == len(shape) == len(t.shape), "a box of other dimensions")
        b = Box(t, offset, shape, number(words[2], self.world - 1), number(words[3]),
                number(words[4]))
        need(b.bytes > 0, "a box without bytes")
        need(not t.boxes or t.boxes[-1].offset < offset, "boxes are not sorted")
        for _ in range((b.bytes + PIECE - 1) // PIECE):
            words = self.words("C", 1)
            need(words, "fewer hashes than pieces")
            b.hashes.append(digest(words[0]))
        t.boxes.append(b)

    def check_places(self):
        self.boxes = [b for t in self.tensors for b in t.boxes]
        self.places = sorted(self.boxes, key=lambda b: (b.file, b.at))
        for b in self.boxes:
            need(b.at + b.bytes <= self.files[b.file][1], "a box reaches beyond its file")
        for a, b in zip(self.places, self.places[1:]):
            need(a.file != b.file or a.at + a.bytes <= b.at, "two boxes share bytes")


class Checkpoint:
    """An open checkpoint: MANIFEST checked, sizes of the files checked."""

    def __init__(self, directory):
        self.fds = []
        fd, size = open_plain(directory, "MANIFEST")
        try:
            need(size <= MANIFEST_MAX, "the MANIFEST is too long")
            raw = pread_all(fd, size, 0)
        finally:
            os.close(fd)
        self.manifest = Manifest(raw)
        name = os.path.basename(os.path.abspath(directory))
        if re.fullmatch("step_[0-9]+", name):
            need(name == f"step_{self.manifest.step:08d}", "the directory was renamed")
        for name, size, _ in self.manifest.files:
            fd, real = open_plain(directory, name)
            self.fds.append(fd)
            need(real == size, f"{name} has {real} bytes, not {size}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fd in self.fds:
            os.close(fd)

    def box_bytes(self, b):
        """The bytes of a box, each piece checked."""
        seed, pieces = b.seed(self.manifest.step), []
        for index, want in enumerate(b.hashes):
            size = min(PIECE, b.bytes - index * PIECE)
            piece = pread_all(self.fds[b.file], size, b.at + index * PIECE)
            found = xxhash.xxh3_128_hexdigest(piece, seed=(seed + index) % U64)
            need(found == want, f"piece {index} of a box of {b.tensor.name} is damaged")
            pieces.append(piece)
        return b"".join(pieces)

    def tensor_bytes(self, t):
        """The whole tensor, row-major."""
        size = DTYPES[t.dtype][1]
        out = bytearray(volume(t.shape) * size)
        for b in t.boxes:
            data, run = self.box_bytes(b), (b.shape[-1] if b.shape else 1) * size
            for i in range(len(data) // run):
                at, rest = 0, i
                where = list(b.offset)
                for d in range(len(b.shape) - 2, -1, -1):
                    where[d] += rest % b.shape[d]
                    rest //= b.shape[d]
                for d, index in enumerate(where):
                    at = at * t.shape[d] + index
                out[at * size:at * size + run] = data[i * run:(i + 1) * run]
        return bytes(out)

    def check_file(self, file):
        """The bytes of a file that belong to no box."""
        name, size, want = self.manifest.files[file]
        seed = (xxhash.xxh3_64_intdigest(name.encode("ascii")) + self.manifest.step) % U64
        state, at = xxhash.xxh3_128(seed=seed), 0
        for b in [b for b in self.manifest.places if b.file == file]:
            state.update(pread_all(self.fds[file], b.at - at, at))
            at = b.at + b.bytes
        state.update(pread_all(self.fds[file], size - at, at))
        need(state.hexdigest() == want, f"{name}: the bytes around the boxes are damaged")

    def verify(self):
        for b in self.manifest.boxes:
            self.box_bytes(b)
        for file in range(self.manifest.world):
            self.check_file(file)


def newest(root):
    """The complete checkpoint of the largest step, or None."""
    steps = [int(n[5:]) for n in os.listdir(root) if re.fullmatch("step_[0-9]+", n)
             and n == f"step_{int(n[5:]):08d}"]
    for step in sorted(steps, reverse=True):
        try:
            with Checkpoint(os.path.join(root, f"step_{step:08d}")):
                return step
        except OtherVersion:
            raise
        except Refused:
            continue
    return None


def extract(checkpoint, out):
    for t in checkpoint.manifest.tensors:
        path = os.path.join(out, "blobs" if t.blob else "tensors", t.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(checkpoint.tensor_bytes(t))


def attribute(value):
    return value.decode() if isinstance(value, bytes) else value


def check_hdf5(checkpoint, directory):
    """Names, types, shapes, places and attributes of all datasets of all files."""
    import h5py

    m = checkpoint.manifest
    for rank, (name, _, _) in enumerate(m.files):
        with h5py.File(os.path.join(directory, name), "r") as f:
            for key, value in (("accel_format_version", VERSION), ("step", m.step),
                               ("world_size", m.world), ("rank", rank),
                               ("accel_version", m.library), ("owner", m.owner),
                               ("sharding", m.sharding)):
                need(attribute(f.attrs[key]) == value, f"{name}: attribute {key}")
            found = []
            f.visititems(lambda n, o: found.append(n) if isinstance(o, h5py.Dataset) else None)
            for t in m.tensors:
                here = [b for b in t.boxes if b.file == rank]
                for k, b in enumerate(here):
                    path = ("state/" if t.blob else "") + t.name + (f"@{k}" if k else "")
                    check_dataset(f[path], t, b, path)
                    check_codes(f[path], m, t, path)
                    found.remove(path)
            need(not found, f"{name}: datasets that no box is: {found}")


def check_dataset(d, t, b, path):
    from h5py import h5t

    need(d.shape == b.shape and d.id.get_offset() == b.at, f"{path}: shape or place")
    need(d.chunks is None and d.compression is None and not d.is_virtual
         and d.external is None, f"{path}: not plain")
    need(attribute(d.attrs["accel_dtype"]) == t.dtype, f"{path}: dtype")
    kind = d.id.get_type()
    if t.dtype in FLOATS:  # numpy has no such types
        size, fields, bias = FLOATS[t.dtype]
        need(kind.get_size() == size and kind.get_fields() == fields
             and kind.get_ebias() == bias, f"{path}: another float than {t.dtype}")
    else:
        plain = "uint8" if t.dtype == "e4m3" else t.dtype
        need(d.dtype == plain and kind.get_order() in (h5t.ORDER_LE, h5t.ORDER_NONE),
             f"{path}: {d.dtype}")
    whole = b.shape == t.shape
    for key, value in (("global_shape", t.shape), ("offset", b.offset)):
        need((key in d.attrs) != whole, f"{path}: attribute {key}")
        need(whole or tuple(d.attrs[key]) == value, f"{path}: attribute {key}")


def check_codes(d, m, t, path):
    """A moment in fp8 has its type as an attribute; files of before that do not."""
    scale = next((x for x in m.tensors if x.name == t.name + ".scale" and not x.blob), None)
    codes = (not t.blob and t.dtype == "uint8" and t.name.startswith("optim/")
             and not t.name.endswith(".scale") and scale is not None
             and scale.dtype == "uint8")
    need(codes or "accel_codes" not in d.attrs, f"{path}: attribute accel_codes")
    need(attribute(d.attrs.get("accel_codes", b"e4m3")) == "e4m3", f"{path}: other codes")


def main(args):
    if len(args) < 2 or args[0] not in ("verify", "manifest", "extract", "newest", "hdf5"):
        print("usage: second_reader.py verify|manifest|extract|newest|hdf5 DIR [OUT]",
              file=sys.stderr)
        return 64
    try:
        if args[0] == "newest":
            step = newest(args[1])
            print("none" if step is None else f"step_{step:08d}")
            return 0 if step is not None else 1
        with Checkpoint(args[1]) as c:
            if args[0] in ("verify", "extract"):
                c.verify()
            if args[0] == "extract":
                extract(c, args[2])
            if args[0] == "hdf5":
                check_hdf5(c, args[1])
            m = c.manifest
            print(f"whole: step {m.step}, {m.world} files, {len(m.tensors)} tensors and "
                  f"blobs, {len(m.boxes)} boxes, {sum(len(b.hashes) for b in m.boxes)} pieces")
    except Refused as e:
        print(f"refused: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
