#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: the page of the checkpoint format did not say what is refused.
# What doc/checkpoint-format.md does not allow is refused, and what it allows is read: 278
# MANIFESTs that break one rule each or touch its limit, and 600 with random mistakes, all
# with the right hash, get the same verdict from accel and from the reader of the page.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"
# shellcheck source=tests/t/second_reader.sh
. "$(dirname "$0")/../t/second_reader.sh"

cat >verdicts.py <<'PY'
# verdicts.py HELPERS ACCEL: a directory per case below ./root, then TAP-like lines
# "ok|bad WHAT", one per case, and how many of either kind there were.
import json, os, random, subprocess, sys
sys.path.insert(0, sys.argv[1])
import second_reader as reader, xxhash

H = "0123456789abcdef0123456789abcdef"
C = f"C {H}\n"
BIG = 2**63 - 1
PIECES = 2**20

def head(step="7", world="1", version="1", library="0.1.0", owner="1.0", sharding="FULL_SHARD",
         run="a run", piece="1048576"):
    return (f"accel-checkpoint {version}\nlibrary {library}\nstep {step}\nworld {world}\n"
            f"owner {owner}\nsharding {sharding}\nrun-id {run}\npiece {piece}\n")

def files(*sizes):
    return "".join(f"F rank_{r:05d}-of-{len(sizes):05d}.h5 {n} {H}\n" for r, n in enumerate(sizes))

ONE, TWO = files(8192), files(8192, 8192)
T = "T model/a float32 4x4\n"
B = "B 0x0 4x4 0 4096 64\n"
cases = []  # what, text, may it pass

def case(what, body, good=False, **words):
    cases.append((what, head(**words) + body, good))

def box(shape, size, at=0):
    return f"B {'x'.join('0' * len(shape.split('x')))} {shape} 0 {at} {size}\n" + C * -(-size // PIECES)

# The limits: the last value that passes, the first that does not.
for what, key, good, bad in (
        ("library", "library", ["x", "x" * 31, "~!"], ["", "x" * 32, "a b", "a\tb", "a\x7f"]),
        ("step", "step", ["7"], ["07", "+7", "-7", "7 ", "", "7.0", "0x7", "1000000000000", str(2**64 + 7)]),
        ("world", "world", [], ["0", "2", "01", "100000", str(2**32 + 1)]),
        ("owner", "owner", ["x", "x" * 63, "a/b", ".x"], ["", "x" * 64, "a b"]),
        ("sharding", "sharding", ["x" * 63, "#"], ["", "x" * 64, "A B"]),
        ("run-id", "run", ["x", "x" * 1024, "a  b", " a", "a ", "~ !"], ["", "x" * 1025, "a\tb", "a\rb", "a\x1fb", "\x7f"]),
        ("piece", "piece", [], ["1048575", "1048577", "0", "2097152", "01048576", ""]),
        ("version", "version", [], ["0", "2", "10", "01", "", "1.0", "-1", "2147483647", "2147483648"])):
    for value in good:
        case(f"{what} '{value[:20]}' of {len(value)}", ONE, True, **{key: value})
    for value in bad:
        case(f"{what} '{value[:20]}' of {len(value)}", ONE, **{key: value})
for what, lines in (("files of rank order", TWO), ("two files and a tensor", TWO + T + "B 0x0 4x4 1 0 64\n" + C)):
    case(what, lines, True, world="2")
for what, lines in (("files in another order", "".join(reversed(TWO.splitlines(True)))), ("a file twice", files(8192, 8192).replace("00001-", "00000-")),
                    ("a file too few", files(8192)), ("a file too many", files(8192, 8192, 8192))):
    case(what, lines, world="2")
for what, line in (("a file of another size", f"F rank_00000-of-00001.h5 8191 {H}\n"), ("a file size with a zero", f"F rank_00000-of-00001.h5 08192 {H}\n"),
                   ("a hash in capitals", f"F rank_00000-of-00001.h5 8192 {H.upper()}\n"), ("a hash too short", f"F rank_00000-of-00001.h5 8192 {H[1:]}\n"),
                   ("a hash too long", f"F rank_00000-of-00001.h5 8192 {H}0\n"), ("a word too many", f"F rank_00000-of-00001.h5 8192 {H} 0\n"),
                   ("a blank at the end", f"F rank_00000-of-00001.h5 8192 {H} \n"), ("no hash", "F rank_00000-of-00001.h5 8192\n"),
                   ("a short rank", f"F rank_0-of-1.h5 8192 {H}\n")):
    case(what, line)
for name, good in (("a", True), ("a/b", True), ("!", True), ("~", True), ("-", True), ("...", True), ("a/.b", True), ("..a", True), ("a..", True), ("x" * 511, True),
                   ("x" * 512, False), ("a//b", False), ("/a", False), ("a/", False), (".", False), ("..", False), ("a/.", False),
                   ("a/..", False), ("../a", False), ("./a", False), ("a/../b", False), ("a/./b", False), ("a@", False), ("@", False), ("a\x7f", False), ("a\x1f", False)):
    case(f"tensor name '{name[:20]}'", ONE + f"T {name} uint8 0\n", good)
    case(f"blob name '{name[:20]}'", ONE + f"S {name} 0\n", good)
for i, name in enumerate(reader.DTYPES):
    size = reader.DTYPES[name][1]
    case(f"dtype {name}", ONE + f"T a {name} 3\n" + box("3", 3 * size), True)
    case(f"dtype {name}, a byte less", ONE + f"T a {name} 3\n" + box("3", 3 * size - 1))
for name in ("float24", "e4m3fn", "e8m0", "Float32", "f32", "bool", "int16", "uint32", "", "unknown", "float3"):
    case(f"dtype '{name}'", ONE + f"T a {name} 0\n")
for shape, good in (("0", True), ("0x9", True), ("9x0", True), (f"0x{BIG}", True), (f"{BIG}x0", True), ("1x1x1x1x1x1x1x0", True), ("1x1x1x1x1x1x1x1x0", False),
                    ("", False), ("x", False), ("0x", False), ("x0", False), ("0xx0", False), ("00", False), ("-0", False), ("0x-", False), ("0X0", False),
                    (f"0x{BIG + 1}", False), (f"0x{BIG}x2", False), ("4294967296x0x4294967296", False), ("--", False)):
    case(f"shape '{shape}'", ONE + f"T a uint8 {shape}\n", good)
case("bytes up to the limit", ONE + f"T a float64 0x{BIG}\n", True)
case("bytes beyond the limit", ONE + "T a float64 1152921504606846976\n")
case("a scalar", ONE + "T a float64 -\nB - - 0 8184 8\n" + C, True)
case("a scalar without a box", ONE + "T a float64 -\n")
case("a scalar twice", ONE + "T a float64 -\nB - - 0 0 8\n" + C + "B - - 0 8 8\n" + C)
case("a scalar with a dimension", ONE + "T a float64 -\nB 0 1 0 0 8\n" + C)
case("one element, no dimension", ONE + "T a float64 1\nB - - 0 0 8\n" + C)
case("an empty tensor with a box", ONE + "T a uint8 0\nB 0 0 0 0 0\n")
case("a blob", ONE + "S a 3\n" + box("3", 3), True)
case("a blob without a box", ONE + "S a 3\n")
case("a blob of two words", ONE + "S a 3 3\n" + box("3", 3))
case("a blob and a tensor of one name", ONE + "T a uint8 0\nS a 0\n", True)
case("a tensor behind a blob", ONE + "S a 0\nT b uint8 0\n")
case("names of another order", ONE + "T b uint8 0\nT a uint8 0\n")
case("order of bytes, not of parts", ONE + "T a.b uint8 0\nT a/b uint8 0\n", True)
case("order of parts, not of bytes", ONE + "T a/b uint8 0\nT a.b uint8 0\n")
case("capitals first", ONE + "T B uint8 0\nT a uint8 0\n", True)
case("a shorter name first", ONE + "T a uint8 0\nT aa uint8 0\n", True)
case("a name twice", ONE + "T a uint8 0\nT a uint8 0\n")
large = files(2**31)
for size, good in ((PIECES - 1, True), (PIECES, True), (PIECES + 1, True), (2 * PIECES, True)):
    text = f"T a uint8 {size}\nB 0 {size} 0 0 {size}\n"
    case(f"{size} bytes", large + text + C * -(-size // PIECES), good)
    case(f"{size} bytes, a hash too few", large + text + C * (-(-size // PIECES) - 1))
    case(f"{size} bytes, a hash too many", large + text + C * (-(-size // PIECES) + 1))
case("blobs of 1 GiB", large + f"S a {2**30}\nB 0 {2**30} 0 0 {2**30}\n" + C * 1024, True)
case("blobs of 1 GiB and a byte", large + f"S a {2**30}\nB 0 {2**30} 0 0 {2**30}\n" + C * 1024 + f"S b 1\nB 0 1 0 {2**30} 1\n" + C)
for what, lines, good in (
        ("a whole box", B, True), ("at byte 0", "B 0x0 4x4 0 0 64\n", True), ("at the end", "B 0x0 4x4 0 8128 64\n", True), ("beyond the end", "B 0x0 4x4 0 8129 64\n", False),
        ("far beyond", f"B 0x0 4x4 0 {BIG} 64\n", False), ("file 1 of 1", "B 0x0 4x4 1 0 64\n", False), ("file 00", "B 0x0 4x4 00 0 64\n", False),
        ("a byte more", "B 0x0 4x4 0 0 65\n", False), ("other dimensions", "B 0 16 0 0 64\n", False), ("moved", "B 1x0 4x4 0 0 64\n", False),
        ("a row less", "B 0x0 3x4 0 0 48\n", False), ("a word too few", "B 0x0 4x4 0 0\n", False), ("a word too many", "B 0x0 4x4 0 0 64 0\n", False),
        ("two blanks", "B 0x0  4x4 0 0 64\n", False), ("no offset", "B  4x4 0 0 64\n", False)):
    case(f"a box {what}", ONE + T + lines + C, good)
for what, lines, good in (
        ("two rows each", ["0x0 2x4 0 0 32", "2x0 2x4 0 32 32"], True), ("in any place", ["0x0 2x4 0 500 32", "2x0 2x4 0 7 32"], True),
        ("columns", ["0x0 4x1 0 0 16", "0x1 4x3 0 16 48"], True), ("of another order", ["2x0 2x4 0 0 32", "0x0 2x4 0 32 32"], False),
        ("columns of another order", ["0x1 4x3 0 16 48", "0x0 4x1 0 0 16"], False), ("that share a byte", ["0x0 2x4 0 0 32", "2x0 2x4 0 31 32"], False),
        ("that overlap", ["0x0 3x4 0 0 48", "2x0 2x4 0 48 32"], False), ("with a hole", ["0x0 1x4 0 0 16", "2x0 2x4 0 32 32"], False),
        ("that overlap and leave a hole", ["0x0 2x4 0 0 32", "0x2 2x2 0 32 16", "2x0 2x2 0 48 16"], False),
        ("of one offset", ["0x0 2x4 0 0 32", "0x0 2x4 0 32 32"], False), ("a pinwheel", ["0x0 1x3 0 0 12", "0x3 3x1 0 12 12", "1x0 3x1 0 24 12", "1x1 2x2 0 36 16", "3x1 1x3 0 52 12"], True)):
    case(f"boxes {what}", ONE + T + "".join(f"B {x}\n" + C for x in lines), good)
case("tensors that share a byte", ONE + T + B + C + "T model/b uint8 2\nB 0 2 0 4159 2\n" + C)
case("tensors side by side", ONE + T + B + C + "T model/b uint8 2\nB 0 2 0 4160 2\n" + C, True)
case("the same bytes of two files", TWO + T + "B 0x0 2x4 0 0 32\n" + C + "B 2x0 2x4 1 0 32\n" + C, True, world="2")
for what, line in (("an unknown line", "Z 1\n"), ("an empty line", "\n"), ("a comment", "# x\n"), ("a second header", "step 7\n"), ("a hash of nothing", C), ("a box of nothing", B + C),
                   ("a second X line", f"X {H}\n"), ("a file behind", ONE), ("a blank first", " T a uint8 0\n"), ("a lower case line", "t a uint8 0\n"), ("a carriage return", "T a uint8 0\r\n"),
                   ("a NUL", "T a uint8 0\0\n"), ("UTF-8", "T \u00e9 uint8 0\n"), ("only a keyword", "T\n"), ("a keyword and a blank", "T \n")):
    case(what, ONE + line)
whole = head() + ONE + T + B + C + "S rng 3\nB 0 3 0 0 3\n" + C
for i, line in enumerate(whole.splitlines(True)[:9]):
    lines = whole.splitlines(True)
    cases.append((f"line {i + 1} left out", "".join(lines[:i] + lines[i + 1:]), False))
    cases.append((f"line {i + 1} twice", "".join(lines[:i + 1] + lines[i:]), False))
    cases.append((f"lines {i + 1} and {i + 2} exchanged", "".join(lines[:i] + [lines[i + 1], lines[i]] + lines[i + 2:]), False))
named = len(cases)

# Random mistakes: nobody says beforehand what the verdict is.
bases = [whole, head(world="2") + TWO + T + "B 0x0 2x4 1 0 32\n" + C + "B 2x0 2x4 0 0 32\n" + C + "T model/s float32 -\nB - - 1 100 4\n" + C,
         head() + ONE + T + "".join(f"B {x}\n" + C for x in ("0x0 1x3 0 0 12", "0x3 3x1 0 12 12", "1x0 3x1 0 24 12", "1x1 2x2 0 36 16", "3x1 1x3 0 52 12"))]
words = ["0", "1", "2", "3", "4", "-", "4x4", "0x0", "2x4", "0x4", "16", "32", "64", "8128", "8192", "float32", "float64", "uint8", "rng", "model/a", "model/b", "T", "S", "B", "", "1x3", "12", "48"]
r = random.Random(11)
for i in range(600):
    lines = [line.split(" ") for line in r.choice(bases).split("\n")[:-1]]
    for _ in range(r.choice((1, 1, 2))):
        line = r.randrange(8, len(lines)) if r.randrange(4) else r.randrange(len(lines))
        kind = r.randrange(5)
        if kind == 0:
            del lines[line]
        elif kind == 1:
            lines.insert(r.randrange(len(lines) + 1), list(lines[line]))
        elif kind == 2:
            other = r.randrange(len(lines))
            lines[line], lines[other] = lines[other], lines[line]
        else:
            lines[line][r.randrange(len(lines[line]))] = r.choice(words)
        if len(lines) < 9:
            break
    cases.append((f"random {i}", "\n".join(" ".join(x) for x in lines) + "\n", None))

# One directory each; the step in the text becomes that of the directory where it can.
os.mkdir("root")
for size in (8192, 2**31):
    for world in (1, 2, 3):
        for rank in range(world):
            with open(f"rank_{rank:05d}-of-{world:05d}.h5.{size}", "wb") as f:
                f.truncate(size)
for i, (what, text, _) in enumerate(cases, 1):
    path = f"root/step_{i:08d}"
    os.mkdir(path)
    raw = text.replace("\nstep 7\n", f"\nstep {i}\n").encode()
    with open(f"{path}/MANIFEST", "wb") as f:
        f.write(raw + b"X " + xxhash.xxh3_128_hexdigest(raw).encode() + b"\n")
    size = 2**31 if str(2**31) in text else 8192
    for world in (1, 2, 3):
        for rank in range(world):
            name = f"rank_{rank:05d}-of-{world:05d}.h5"
            os.link(f"{name}.{size}", f"{path}/{name}")
listed = json.loads(subprocess.run([sys.argv[2], "ckpt", "ls", "--json", "root"], check=True,
                                   stdout=subprocess.PIPE).stdout)
theirs = {c["name"]: (c["state"] == "complete", c["problem"]) for c in listed["checkpoints"]}
passed = [0, 0, 0]
for i, (what, text, good) in enumerate(cases, 1):
    name, why, ours = f"step_{i:08d}", "", True
    try:
        with reader.Checkpoint(f"root/{name}"):
            pass
    except reader.Refused as e:
        ours, why = False, str(e)
    same = theirs[name][0] == ours and good in (None, ours)
    passed[2 if good is None and ours else int(ours)] += same
    if not same:
        print(f"bad {what}: accel {theirs[name]}, the page's reader {ours} {why}: {text[-300:]!r}")
    if what.startswith("version '2'") and not ("format 2" in theirs[name][1] and "format 1" in theirs[name][1] and "format 2" in why and "format 1" in why):
        print(f"bad {what}: both versions are to be named: {theirs[name][1]}; {why}")
print(f"cases {named} refused {passed[0]} read {passed[1]} random-read {passed[2]}")
PY
out=$("$python" verdicts.py "$ACCEL_SRC/tests/helpers" "$ACCEL_BUILD/accel" 2>&1)
is "$(printf '%s\n' "$out" | grep -v '^cases ')" "" "accel and the page have the same rules"
like "$out" '^cases [1-9][0-9][0-9] refused [1-9][0-9][0-9] read [1-9][0-9] random-read [1-9]' "cases of both kinds: $out"

# Another version is not damage: nobody goes back to an older checkpoint for it.
mkdir newer
other=$(grep -l '^accel-checkpoint 2$' root/*/MANIFEST | head -n 1)
cp -r root/step_00000001 "${other%/MANIFEST}" newer
like "$("$python" "$ACCEL_SRC/tests/helpers/second_reader.py" newest newer)" \
    '^refused: format 2; this reader knows format 1$' "a newer version stops the search"

# The X line and what stands around the text.
mkdir -p tail/step_00000001
cp root/step_00000001/* tail/step_00000001/
m=tail/step_00000001/MANIFEST
# shellcheck disable=SC2317 # by passes and fails
reader() {
    "$python" "$ACCEL_SRC/tests/helpers/second_reader.py" manifest tail/step_00000001
}
cp "$m" good
try() { # WHAT: both refuse what is in $m now
    fails "$1: refused by the page's reader" reader
    contains "$("$ACCEL_BUILD/accel" ckpt ls tail)" " damaged " "$1: and by accel"
    rm -f "$m"
    cp good "$m"
}
passes "a right MANIFEST" reader
printf '\n' >>"$m" && try "a newline behind it"
head -c -1 good >"$m" && try "the last newline missing"
sed '$d' good >"$m" && try "no X line"
sed 's/^X /x /' good >"$m" && try "another last line"
sed '/^X /y/abcdef/ABCDEF/' good >"$m" && try "its hash in capitals"
sed 's/^owner 1/owner 2/' good >"$m" && try "another byte above"
: >"$m" && try "an empty file"
rm "$m" && ln -s ../../good "$m" && try "a link"
rm "$m" && mkfifo "$m" && try "a pipe"
rm tail/step_00000001/rank_00000-of-00001.h5 && ln -s ../../rank_00000-of-00001.h5.8192 tail/step_00000001/rank_00000-of-00001.h5
try "a link in place of a shard"
done_testing
