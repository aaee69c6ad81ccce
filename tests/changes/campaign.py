# SPDX-License-Identifier: Apache-2.0
#
# make check-mutants: do the tests bite? Changes of the source are drawn by rule (sites.py)
# from a seed, spread over the rooms by their lines; each is compiled and linked alone in a copy
# of the tree, and the tests that run its line must notice. In: a configured tree and what
# make check-coverage found. Out: a line per change and a table by room; the tree stays as it is.
"""A campaign of changes by rule."""

import argparse
import collections
import difflib
import functools
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys

from coverage import MAP, ROOMS, WORK, copied, room_of, try_test
from sites import changes_of
from tree import Failed, Tree, run

BUDGET = 40     # seconds of tests per change, by what they took unchanged
LINK = 1        # seconds that a program costs before it runs
GOLDEN = 0.6180339887498949
NO_EFFECT = "tests/changes/no-effect"
TEXTS = "tests/t/1100-messages-rules.t"     # reads the texts of all errors in the source


def last_run(top):
    """Seconds of each test in the last scripts/test, if there was one here: below gcov some
    take twenty times as long."""
    try:
        with open(os.path.join(top, "build-tap.state"), encoding="utf-8") as source:
            said = source.read()
    except FileNotFoundError:
        return {}
    return {test: float(seconds) for test, seconds in
            re.findall(r'^  "?([^ "].*?)"?:\n(?:    .*\n)*?    elapsed: ([\d.]+)', said, re.M)}


class Coverage:
    """Which tests run a line, the quick ones first: programs, then scripts."""

    def __init__(self, top):
        with gzip.open(os.path.join(top, MAP), "rt") as source:
            document = json.load(source)
        quick = last_run(top)
        self.tests = [(test, quick.get(test, seconds)) for test, seconds in document["tests"]]
        self.lines = document["lines"]
        self.objects = {test: set(ran) for test, ran in document["objects"].items()}
        self.seconds, self.then = dict(self.tests), os.path.join(top, WORK, "coverage")

    @functools.cached_property
    def counted(self):
        """Objects that leave counts: those of tables alone do not."""
        return set().union(*self.objects.values())

    def watched(self, path, text, first, last):
        """Lines of the source that gcov saw for these of today's; a new one counts as the lines
        around it."""
        try:
            with open(os.path.join(self.then, path), encoding="utf-8") as source:
                old = source.read().splitlines()
        except FileNotFoundError:
            return set()
        found = set()
        for tag, i, k, j, m in difflib.SequenceMatcher(None, old, text.splitlines(),
                                                       False).get_opcodes():
            if j < last and first <= m:
                found |= set(range(max(i, i + first - 1 - j), min(k, i + last - j))) \
                    if tag == "equal" else set(range(i - 1, k + 1))
        return {line + 1 for line in found}

    def of(self, change, text):
        """Tests that run a line of the change, with their seconds. Where none is known to (as
        another user's processes leave no counts), those that run most of the file, or else of
        the room."""
        rows = self.lines.get(change.path, {})
        last = change.line + change.old.count("\n")
        found = {i for n in self.watched(change.path, text, change.line, last)
                 for i in rows.get(str(n), ())}
        order = lambda test: (test[0] != TEXTS and test[0].endswith(".t"), test[1], test[0])
        if '"' in change.old:
            found |= {i for i, (test, _) in enumerate(self.tests) if test == TEXTS}
        if found:
            return sorted((self.tests[i] for i in found), key=order)
        room = room_of(change.path)
        return self.most({change.path}) or \
            self.most({path for path in self.lines if room_of(path) == room})

    def most(self, paths):
        ran = collections.Counter(i for path in paths for who in self.lines.get(path, {}).values()
                                  for i in who)
        return [self.tests[i] for i, _ in ran.most_common(10)]


def within(tests, budget):
    """Those at the front that fit: at least one, if there is any."""
    chosen, spent = [], 0
    for name, seconds in tests:
        spent += seconds + LINK
        if chosen and spent > budget:
            break
        chosen.append(name)
    return chosen


# ---- drawing -----------------------------------------------------------------------------


class Urn:
    """Draws changes: number n of a seed is always the same one in the same source."""

    def __init__(self, tree, seed, only=None):
        self.tree, self.seed, self.known = tree, seed, {}
        sources = {path for path, _ in tree.compiles.values()} | set(tree.reached)
        sources = {path for path in sources
                   if path.startswith(tuple(room + "/" for room in ROOMS))
                   and (only is None or path in only)}
        self.files, total = [], 0
        for path in sorted(sources, key=lambda p: (room_of(p), p)):
            with open(os.path.join(tree.folder, path), "rb") as source:
                total += source.read().count(b"\n")
            self.files.append((total, path))
        self.total = total

    def all_of(self, path):
        if path not in self.known:
            self.known[path] = changes_of(path, *self.tree.flags_of(path))
        return self.known[path]

    def number(self, n, attempt):
        """Evenly spread over the files by their lines; the rule first, then the place, as some
        rules have many more places than others."""
        chance = random.Random(f"{self.seed} {n} {attempt}")
        where = (n + 1 + chance.random() / 8) * GOLDEN % 1 * self.total
        path = next(path for end, path in self.files if where < end)
        places = self.all_of(path)
        if not places:
            return None
        rule = chance.choice(sorted({change.rule for change in places}))
        return chance.choice([change for change in places if change.rule == rule])

    def named(self, key):
        """The change of that name, if the source still has it."""
        path = key.split(":", 1)[0]
        return next((change for change in self.all_of(path) if change.key() == key), None) \
            if os.path.exists(os.path.join(self.tree.folder, path)) else None


# ---- trying ------------------------------------------------------------------------------


def fingerprint(path):
    """Of an object's code and data, without what debuggers read."""
    bare = path + ".bare"
    subprocess.run(["objcopy", "--strip-debug", "-R", ".comment", path, bare], check=True)
    with open(bare, "rb") as data:
        found = hashlib.sha256(data.read()).hexdigest()
    os.unlink(bare)
    return found


class Bench:
    """A copy of the tree in which one change at a time is tried."""

    def __init__(self, tree, coverage, budget):
        self.tree, self.coverage, self.budget = tree, coverage, budget

    def compiled(self, change):
        """The objects that the change alters; None where it does not compile."""
        altered = []
        for name in self.tree.objects_of(change.path):
            target = os.path.join(self.tree.folder, self.tree.file_of(name))
            before = fingerprint(target)
            if self.tree.compile(name):
                return None
            if fingerprint(target) != before:
                altered.append(name)
        return altered

    def test(self, test, altered):
        """Links what the test starts, then runs it."""
        products = {p for name in altered for p in self.tree.holders(name)[1]}
        for product in sorted(p for p in products - self.linked if self.starts(test, p)):
            wrong = self.tree.link(product)
            if wrong:
                return "fails", "it does not link: " + wrong[-200:]
            self.linked.add(product)
        return try_test(self.tree.folder, test, 60 + 5 * self.coverage.seconds.get(test, 10))

    def starts(self, test, product):
        """A library, or a program whose own objects ran in the test."""
        own = {self.tree.file_of(name) for name in self.tree.links[product][0]
               if not name.endswith(".la")} & self.coverage.counted
        return product.endswith((".la", ".so")) or \
            bool(own) and own <= self.coverage.objects.get(test, set())

    def judge(self, change, text, altered):
        tests = self.coverage.of(change, text)
        chosen = within(tests, self.budget) if self.budget else [name for name, _ in tests]
        for test in chosen:
            state, why = self.test(test, altered)
            if state in ("fails", "hangs"):
                return "found", f"{test}: {why}"
        return "survived", f"{len(chosen)} of {len(tests)} tests pass"

    def attempt(self, change):
        """Verdict and why; None: it is not C. The copy is as it was afterwards."""
        path = os.path.join(self.tree.folder, change.path)
        with open(path, "rb") as source:
            text = source.read()
        old = change.old.encode()
        if text[change.at:change.at + len(old)] != old:
            raise Failed(f"{path} is not what the changes were drawn from")
        self.linked = set()
        altered = []
        objects = [os.path.join(self.tree.folder, self.tree.file_of(name))
                   for name in self.tree.objects_of(change.path)]
        for name in objects:
            shutil.copy2(name, name + ".kept")
        try:
            with open(path, "wb") as out:
                out.write(text[:change.at] + change.new.encode() + text[change.at + len(old):])
            altered = self.compiled(change)
            if altered is None:
                return None
            if not altered:
                return "no effect", "the compiler makes the same code"
            for name in altered:
                self.tree.archive(name)
            return self.judge(change, text.decode(), altered)
        finally:
            with open(path, "wb") as out:
                out.write(text)
            for name in objects:
                os.replace(name + ".kept", name)
            self.restore(altered or [])

    def restore(self, altered):
        for name in altered:
            self.tree.archive(name)
        for product in sorted(self.linked):
            self.tree.link(product)


# ---- the campaign --------------------------------------------------------------------------


def judged(top):
    """Changes that were looked at and have no effect: key -> reason."""
    with open(os.path.join(top, NO_EFFECT), encoding="utf-8") as source:
        rows = [line.rstrip("\n").split("\t") for line in source
                if line.strip() and not line.startswith("#")]
    return dict(rows)


def worker(number, options, queue, results):
    top = os.getcwd()
    try:
        copy = copied(top, f"copy-{number}", ("--without-cuda", "--disable-werror"))
        tree = Tree(copy)
        os.chdir(copy)
        urn = Urn(tree, options.seed, options.only)
        bench = Bench(tree, Coverage(top), options.budget)
        known = judged(top)
        for n, key in iter(queue.get, None):
            results.put((n, *(again(key, urn, bench, known) if key else one(n, urn, bench, known))))
    except (Failed, OSError, ValueError) as error:
        results.put((None, None, "died", str(error)))
    results.put((None, None, "end", ""))


def one(n, urn, bench, known):
    """Number n: the first draw that compiles and makes other code."""
    dropped = 0
    for attempt in range(100):
        change = urn.number(n, attempt)
        verdict = bench.attempt(change) if change else None
        if verdict and verdict[0] == "no effect":
            dropped += 1
        elif verdict:
            if verdict[0] == "survived" and change.key() in known:
                verdict = ("no effect", known[change.key()])
            return change, *verdict
    raise Failed(f"number {n}: no change of {dropped} alters any code")


def again(key, urn, bench, known):
    """One that survived once more, now that there may be other tests."""
    change = urn.named(key)
    if change is None:
        return None, "gone", key
    if key in known:
        return change, "no effect", known[key]
    verdict, why = bench.attempt(change)
    return change, "found later" if verdict == "found" else verdict, why


class Record:
    """What was found of a seed, kept from piece to piece: number -> room, verdict, reached."""

    def __init__(self, top, seed):
        self.path, self.rows = os.path.join(top, WORK, f"seed-{seed}.json"), {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as source:
                self.rows = {int(n): row for n, row in json.load(source).items()}

    def add(self, n, change, verdict, why):
        self.rows[n] = [room_of(change.path), verdict, change.key(), why]
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            json.dump(self.rows, out, indent=0)
        os.replace(self.path + ".new", self.path)

    def table(self, numbers):
        """Prints the table; the percentage of those with an effect that were found."""
        verdicts = ("found", "found later", "survived", "no effect")
        rows = {}
        for n in numbers:
            room, verdict, _, _ = self.rows[n]
            for name in (room, "all"):
                rows.setdefault(name, dict.fromkeys(verdicts, 0))[verdict] += 1
        print(f"\n{'room':28} {'tried':>6} " + " ".join(f"{v:>12}" for v in verdicts))
        for room in sorted(rows, key=lambda name: (name == "all", name)):
            print(f"{room:28} {sum(rows[room].values()):6} "
                  + " ".join(f"{rows[room][v]:12}" for v in verdicts))
        total = rows.get("all", dict.fromkeys(verdicts, 0))
        found = total["found"] + total["found later"]
        share = 100 * found / max(found + total["survived"], 1)
        print(f"{share:.0f} % of the changes with an effect were found")
        return share


def changed_sources(top):
    """What differs from the last commit, or where nothing does, from the one before."""
    for against in ("HEAD", "HEAD~1"):
        said = subprocess.run(["git", "diff", "--name-only", against], cwd=top,
                              capture_output=True, check=True).stdout.decode().split()
        sources = [path for path in said
                   if path.endswith((".c", ".cu", ".h")) and path.split("/")[0] in ROOMS]
        if sources:
            return set(sources)
    raise Failed("no C source was changed")


def options_of(words):
    parser = argparse.ArgumentParser(prog="make check-mutants")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--budget", type=int, help="seconds of tests per change, 0: no limit")
    parser.add_argument("--later", action="store_true",
                        help="those that survived once more, by default without a limit")
    parser.add_argument("--changed", action="store_true", help="only what was changed in git")
    parser.add_argument("--sources", nargs="*", help="only these files")
    options = parser.parse_args(words)
    if options.budget is None:
        options.budget = 0 if options.later else BUDGET
    return options


def tried(options, numbers, keys):
    """Tries them, a copy of the tree each worker: number, change, verdict and why."""
    queue, results = multiprocessing.Queue(), multiprocessing.Queue()
    for n in numbers:
        queue.put((n, keys.get(n)))
    workers = []
    for number in range(min(options.jobs, len(numbers))):
        queue.put(None)
        workers.append(multiprocessing.Process(target=worker,
                                               args=(number, options, queue, results)))
        workers[-1].start()
    left, died = len(workers), None
    while left:
        n, change, verdict, why = results.get()
        if verdict == "end":
            left -= 1
        elif verdict == "died":
            died = why
        else:
            yield n, change, verdict, why
    for process in workers:
        process.join()
    if died:
        raise Failed(died)


def main(words):
    options, top = options_of(words), os.getcwd()
    if not os.path.exists(MAP):
        raise Failed("run make check-coverage first: it says which tests run a line")
    options.only = changed_sources(top) if options.changed else \
        set(options.sources) if options.sources else None
    record = Record(top, options.seed if options.only is None else "changed")
    numbers, keys = list(range(options.first, options.first + options.count)), {}
    if options.later:
        keys = {n: record.rows[n][2] for n in numbers
                if record.rows.get(n, ["", ""])[1] == "survived"}
        numbers = sorted(keys)
    for n, change, verdict, why in tried(options, numbers, keys):
        if change is None:
            print(f"{n:5} {verdict:11} {why}", flush=True)
            continue
        record.add(n, change, verdict, why)
        print(f"{n:5} {verdict:11} {change.rule}: {change.key()} (line {change.line})\n"
              f"{'':18}{why}", flush=True)
    record.table(numbers)
    if options.only is None:
        print(f"\nAll of seed {options.seed}:", end="")
        record.table(record.rows)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as error:
        print(f"check-mutants: {error}", file=sys.stderr)
        sys.exit(2)
