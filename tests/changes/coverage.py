# SPDX-License-Identifier: Apache-2.0
#
# make check-coverage: which lines and branches the tests run, and which test runs which line.
# In: a configured tree. Out: a table by room, the functions that no test runs, and
# build-changes/coverage.json.gz for make check-mutants. The tests run one by one in a copy of the
# tree that gcov watches; the tree itself stays as it is.
"""Coverage of the tests, a test at a time."""

import concurrent.futures
import filecmp
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time

from tree import Failed, listed_by, run

WORK = "build-changes"
MAP = os.path.join(WORK, "coverage.json.gz")
ROOMS = ("runtime", "checkpoint", "cli", "srun_plugin")
SIDE_BY_SIDE = 5            # as in scripts/test: most tests wait for a cluster
ALONE = "tests/t/0030"      # installs, which links libraries that others have open


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def copied(top, name, settings=(), targets=("all", "test-programs")):
    """A copy of the tree that is configured as it is and built, in build-changes/name. One that
    is there is used again while the tree's files are the same."""
    copy = os.path.join(top, WORK, name)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=top,
                            capture_output=True, check=True).stdout.decode().split("\0")
    files = [path for path in listed if path and os.path.exists(os.path.join(top, path))]
    files += [path for path in ("configure", "aclocal.m4", "Makefile.in", "config.h.in")
              if os.path.exists(os.path.join(top, path)) and path not in files]
    files += [os.path.join(folder, name) for folder in ("build-aux", "m4")
              for name in os.listdir(os.path.join(top, folder))]
    for path in files:
        bring(os.path.join(top, path), os.path.join(copy, path))
    asked = subprocess.run(["./config.status", "--config"], cwd=top, capture_output=True,
                           check=True).stdout.decode().strip()
    command = f"./configure {asked} --prefix='{copy}/prefix' {' '.join(settings)}"
    stamp = os.path.join(copy, "configured-by")
    if not os.path.exists(stamp) or slurp(stamp) != command:
        must(f"rm -f Makefile && {command} && make -s clean", copy)
        with open(stamp, "w", encoding="utf-8") as out:
            out.write(command)
    must("make -s Makefile", copy)
    units = listed_by("print-unit-tests", copy)
    must(f"make -s -j{os.cpu_count()} {' '.join(targets)} {' '.join(units)}", copy)
    return copy


def slurp(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


def bring(source, target):
    """Copies a file, or a link, with its time; a file that was another one is new to make."""
    if os.path.lexists(target):
        if os.path.islink(source) or filecmp.cmp(source, target, shallow=False):
            return
        shutil.copy(source, target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def must(command, folder):
    status, said = run(["/bin/sh", "-c", command], folder, 3600)
    if status != 0:
        raise Failed(f"{command[:60]}... in {folder}:\n{said[-2000:]}")


def try_test(folder, test, seconds=900, more=None):
    """passes, fails, hangs or skipped; and what it said."""
    env = dict(os.environ, ACCEL_SRC=folder, ACCEL_BUILD=folder, **(more or {}))
    status, said = run(["/bin/sh", "-c", '. tests/sanitizer.sh; exec prove --exec "" -v "$1"',
                        "sh", test], folder, seconds, env)
    if status is None:
        return "hangs", f"no end after {seconds} s"
    if status != 0:
        wrong = [line.strip() for line in said.splitlines()
                 if re.search("not ok|Dubious|Non-zero|Parse errors", line)]
        return "fails", wrong[0] if wrong else f"status {status}"
    return ("skipped" if "Result: NOTESTS" in said else "passes"), ""


# ---- one test's lines ----------------------------------------------------------------------


def below(folder, ending):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
            if name.endswith(ending)]


def read(folder, files):
    """What gcov makes of counts, or of notes alone: a document per source and object."""
    for first in range(0, len(files), 100):
        said = subprocess.run(["gcov", "-b", "-j", "-t", *files[first:first + 100]], cwd=folder,
                              capture_output=True, check=True).stdout.decode()
        for line in said.splitlines():
            if line.startswith("{"):
                yield from json.loads(line)["files"]


def counted(folder, root):
    """What one test left below root, where gcov wants the compiler's notes beside it: the
    documents, and the objects that ran."""
    files = below(root + folder, ".gcda")
    for path in files:
        note = path[:-5] + ".gcno"
        if not os.path.exists(note):
            os.symlink(os.path.join(folder, note[len(root + folder) + 1:]), note)
    objects = [path[len(root + folder) + 1:-5] + ".o" for path in files]
    return list(read(folder, files)), objects


class Counts:
    """Lines, branches and functions of all sources, and who ran them."""

    def __init__(self):
        self.lines, self.branches, self.functions, self.tests = {}, {}, {}, {}
        self.objects = {}       # test -> objects that it started

    def add(self, test, document):
        path = os.path.normpath(document["file"])
        if not path.startswith(tuple(room + "/" for room in ROOMS)):
            return
        lines = self.lines.setdefault(path, {})
        for line in document["lines"]:
            number = line["line_number"]
            who = lines.setdefault(number, set())
            if test and line["count"]:
                who.add(test)
            for at, branch in enumerate(line["branches"]):
                key = (number, at)
                table = self.branches.setdefault(path, {})
                table[key] = table.get(key, False) or bool(test and branch["count"])
        for function in document["functions"]:
            table = self.functions.setdefault(path, {})
            # instances of a template and versions for processors begin at one line
            known = table.setdefault(function["start_line"],
                                     [function["demangled_name"].split(".")[0], False])
            known[1] |= bool(test and function["execution_count"])

    def keep(self, path):
        """What an earlier run said of tests that were not run now."""
        with gzip.open(path, "rt") as source:
            old = json.load(source)
        kept = {i: test for i, (test, _) in enumerate(old["tests"]) if test not in self.tests}
        self.tests |= {test: seconds for test, seconds in old["tests"] if test in kept.values()}
        self.objects |= {test: old["objects"][test] for test in kept.values()}
        for name, lines in old["lines"].items():
            for line, who in lines.items():
                self.lines.setdefault(name, {}).setdefault(int(line), set()).update(
                    kept[i] for i in who if i in kept)

    def save(self, path):
        numbers = {test: i for i, test in enumerate(self.tests)}
        document = {"tests": list(self.tests.items()), "objects": self.objects,
                    "lines": {name: {line: sorted(numbers[t] for t in who)
                                     for line, who in lines.items()}
                              for name, lines in self.lines.items()}}
        with gzip.open(path, "wt") as out:
            json.dump(document, out)


def rooms(counts):
    """Per room: lines, of them run; branches, of them taken."""
    table = {}
    for path, lines in counts.lines.items():
        row = table.setdefault(room_of(path), [0, 0, 0, 0])
        row[0] += len(lines)
        row[1] += sum(1 for who in lines.values() if who)
        row[2] += len(counts.branches.get(path, {}))
        row[3] += sum(counts.branches.get(path, {}).values())
    return table


def show(counts):
    print(f"{'room':28} {'lines':>7} {'run':>6}  {'branches':>8} {'taken':>6}")
    total = [0, 0, 0, 0]
    for room, row in sorted(rooms(counts).items()) + [("all", None)]:
        row = row or total
        total = [a + b for a, b in zip(total, row)] if row is not total else total
        print(f"{room:28} {row[0]:7} {100 * row[1] / max(row[0], 1):5.1f}%  {row[2]:8} "
              f"{100 * row[3] / max(row[2], 1):5.1f}%")
    for path, functions in sorted(counts.functions.items()):
        for line, (name, ran) in sorted(functions.items()):
            if not ran:
                print(f"no test runs {path}:{line}: {name}")


def tried(copy, tests, place):
    """Each test: its name, seconds, verdict, and what it ran: documents and objects."""
    def one(test):
        root = os.path.join(place, "counts-" + test.replace("/", "-"))
        shutil.rmtree(root, ignore_errors=True)
        began = time.monotonic()
        verdict = try_test(copy, test, more={"GCOV_PREFIX": root})
        seconds = time.monotonic() - began
        found = counted(copy, root) if verdict[0] != "skipped" else ([], [])
        shutil.rmtree(root, ignore_errors=True)
        return test, seconds, verdict, *found

    for together in (True, False):
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE if together else 1) as pool:
            some = [test for test in tests if test.startswith(ALONE) != together]
            for done in concurrent.futures.as_completed([pool.submit(one, t) for t in some]):
                yield done.result()


def main(top, wanted):
    os.makedirs(os.path.join(top, WORK), exist_ok=True)
    wrap = os.path.join(top, WORK, "exit_dump.o")
    must(f"gcc -O -c -o '{wrap}' tests/changes/exit_dump.c", top)
    copy = copied(top, "coverage", (
        "CFLAGS='-g -O1 --coverage'",
        "CXXFLAGS='-g -O1 --coverage'",
        f"LDFLAGS='--coverage -Wl,--wrap=_exit,--wrap=setrlimit,{wrap}'",
        "--disable-werror", "--without-cuda"))
    counts, failed = Counts(), 0
    tests = [test for test in listed_by("print-tests", copy)
             if not wanted or any(word in test for word in wanted)]
    place = os.path.join(top, WORK)
    for test, seconds, (state, why), documents, objects in tried(copy, tests, place):
        print(f"{seconds:7.1f} s  {state:8} {test} {why}", flush=True)
        failed += state in ("fails", "hangs")
        if state != "skipped":
            counts.tests[test], counts.objects[test] = round(seconds, 1), objects
        for document in documents:
            counts.add(test, document)
    for document in read(copy, below(copy, ".gcno")): # sources that no test runs at all
        counts.add(None, document)
    show(counts)
    if wanted and os.path.exists(os.path.join(top, MAP)):
        counts.keep(os.path.join(top, MAP))
    counts.save(os.path.join(top, MAP))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(os.getcwd(), sys.argv[1:]))
    except Failed as error:
        print(f"coverage: {error}", file=sys.stderr)
        sys.exit(2)
