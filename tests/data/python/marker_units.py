# SPDX-License-Identifier: Apache-2.0
"""TAP: accel.json, the marker of a Trainer's checkpoint, and the choice of a checkpoint.

Run in an empty directory. Needs libacceljob and no torch.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import threading

from accel_slurm import Error, _choice, marker

count = 0


def ok(passed, what):
    global count
    count += 1
    first = what.split("\n")[0]
    print("%s %d - %s" % ("ok" if passed else "not ok", count, first), flush=True)


def make(path, step, run_id="one", **facts):
    os.makedirs(os.path.join(path, "sub"), exist_ok=True)
    for name in ("model.safetensors", "sub/optimizer.pt", "rng_state_1.pth"):
        with open(os.path.join(path, name), "w") as file:
            file.write("%s of step %d\n" % (name, step))
    form = {"step": step, "ranks": 2, "batch": 4, "accumulation": 1}
    marker.write(path, {**form, "run_id": run_id, "evaluate": False, **facts})
    return path


def torn(path):
    """Why check() does not take it; None: it does."""
    try:
        marker.check(path)
    except marker.Torn as error:
        return str(error)
    return None


def damage():
    def edit(**change):
        content = json.load(open("c/accel.json"))
        content.update(change)
        json.dump(content, open("c/accel.json", "w"))

    def put(text):
        open("c/accel.json", "w").write(text)

    hash_ = "0123456789abcdef"
    cases = [
        (
            "a file is gone",
            "model.safetensors: No such file",
            lambda: os.unlink("c/model.safetensors"),
        ),
        (
            "a file is cut short",
            "sub/optimizer.pt has 3 bytes of",
            lambda: os.truncate("c/sub/optimizer.pt", 3),
        ),
        (
            "one byte differs",
            "model.safetensors has other bytes",
            lambda: open("c/model.safetensors", "r+").write("M"),
        ),
        ("no marker", "it has no accel.json", lambda: os.unlink("c/accel.json")),
        ("an empty marker", "is not JSON", lambda: put("")),
        ("half a marker", "is not JSON", lambda: put(open("c/accel.json").read()[:99])),
        (
            "bytes that are no text",
            "is not JSON",
            lambda: open("c/accel.json", "wb").write(b"\xff\xfe"),
        ),
        ("deep nesting", "is not JSON", lambda: put("[" * 100000)),
        ("no object", "is not an object", lambda: put("[1]")),
        ("another format", "has format 2, this accel_slurm reads 1", lambda: edit(format=2)),
        ("no step", "has no number 'step'", lambda: edit(step="10")),
        ("ranks below 0", "has no number 'ranks'", lambda: edit(ranks=-1)),
        ("true for a number", "has no number 'batch'", lambda: edit(batch=True)),
        ("no files", "lists no files", lambda: edit(files={})),
        ("a path that leaves it", "bad entry for '../x'", lambda: edit(files={"../x": [1, hash_]})),
        (
            "an absolute path",
            "bad entry for '/etc/passwd'",
            lambda: edit(files={"/etc/passwd": [1, hash_]}),
        ),
        ("an entry of another form", "bad entry for 'x'", lambda: edit(files={"x": [1]})),
        ("a hash of another form", "bad entry for 'x'", lambda: edit(files={"x": [1, "0"]})),
        (
            "a folder for a file",
            "rng_state_1.pth",
            lambda: (os.unlink("c/rng_state_1.pth"), os.mkdir("c/rng_state_1.pth")),
        ),
    ]
    for what, wanted, action in cases:
        os.system("rm -rf c")
        make("c", 10)
        action()
        got = torn("c")
        ok(got is not None and wanted in got, "%s: %s" % (what, got))
    os.system("rm -rf c")
    make("c", 10)
    os.unlink("c/accel.json")
    os.mkdir("c/accel.json")
    ok("cannot be read" in (torn("c") or ""), "a marker that cannot be read")


def writing():
    make("w", 10)
    ok(torn("w") is None, "what is written is whole")
    ok(marker.read("w")["step"] == 10, "and tells its step")
    names = sorted(marker.read("w")["files"])
    wanted = ["model.safetensors", "rng_state_1.pth", "sub/optimizer.pt"]
    ok(names == wanted, "and lists all files but itself")
    open("w/README.md", "w").write("by the user\n")
    ok(torn("w") is None, "a file beside them does no harm")
    marker.remove("w")
    ok(torn("w") is not None, "without the marker it is not whole")
    marker.remove("w")
    ok(not os.path.exists("w/accel.json"), "removing it twice is no error")

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        make("w", 10)
        failed = None
    except OSError as error:
        failed = error
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    ok(failed is not None, "a marker that cannot be written is an error")
    left = [name for name in os.listdir("w") if name.startswith("accel.json")]
    ok(not left, "and leaves nothing")
    os.symlink("nowhere", "w/dangling")
    try:
        make("w", 10)
        failed = None
    except (OSError, Error) as error:
        failed = error
    ok("dangling" in str(failed), "a file that cannot be read is an error: %s" % failed)
    ok(not os.path.exists("w/accel.json"), "and there is no marker")
    mine = [rank for rank in (0, 1, 3, 30) if marker._names_rank("rng_state_3.pth", rank)]
    ok(mine == [3], "rng_state_3.pth is rank 3's")
    ok(marker._names_rank("d/__12_0.distcp", 12), "__12_0.distcp is rank 12's")


class Alone:
    """What Choice needs of a job."""

    def __init__(self, directory, resume=None, restart=0, run_id="one"):
        self.directory, self.resume = directory, resume
        self.restart, self.run_id, self._rank = restart, run_id, 0

    def _agree(self, values):
        return list(values)


FORM = _choice.Form(2, 4, 1)


def find(job, form=FORM, checks=True, number=1, is_first=True):
    """(checkpoint's name or None, lines said, text of the error)."""
    said = []
    try:
        choice = _choice.Choice(job, checks, said.append, number, is_first)
        path, due = choice.find(form)
        return path and os.path.relpath(path, "r"), due, said, ""
    except Error as error:
        return None, False, said, str(error)


def choosing():
    for step in (10, 20, 100):
        make("r/checkpoint-%d" % step, step)
    os.mkdir("r/checkpoint-x")
    open("r/checkpoint-7", "w").close()
    steps = [step for step, _ in _choice.checkpoints("r")]
    ok(steps == [100, 20, 10], "checkpoints by number, the newest first")
    ok(_choice.checkpoints("nowhere") == [], "none where there is no directory")

    ok(find(Alone("r"))[0] is None, "a first attempt begins anew")
    ok(find(Alone("r", restart=1))[0] == "checkpoint-100", "a restart takes the newest")
    ok(find(Alone("r", "auto"))[0] == "checkpoint-100", "so does auto")
    ok(find(Alone("r", "none"))[0] is None, "none takes none")
    got = find(Alone("r", "none", restart=2))
    ok(got[0] == "checkpoint-100", "but a restart takes its own")
    got = find(Alone("r", "none", restart=2, run_id="two"))
    ok(got[0] is None, "and not another run's")
    ok("begins at step 0" in "".join(got[2]), "which it says")
    got = find(Alone("r", "auto", restart=2, run_id="two"))
    ok(got[0] == "checkpoint-100", "with auto also another run's")
    make("r/checkpoint-30", 30, run_id="two")
    got = find(Alone("r", "auto", restart=2, run_id="two"))
    ok(got[0] == "checkpoint-30", "but its own first, however old")
    ok(find(Alone("r", "r/checkpoint-20"))[0] == "checkpoint-20", "a path that is given")
    ok(find(Alone("r", "r"))[0] == "checkpoint-100", "a directory that is given")
    got = find(Alone("r", "nowhere/checkpoint-1"))
    ok("not whole: it has no accel.json" in got[3], "a path with nothing: %s" % got[3])
    ok("no whole checkpoint" in find(Alone("r", "sub"))[3], "a directory with nothing")
    ok("best" in find(Alone("r", "best"))[3], "best is refused")

    os.unlink("r/checkpoint-100/accel.json")
    os.truncate("r/checkpoint-30/model.safetensors", 3)
    got = find(Alone("r", "auto"))
    ok(got[0] == "checkpoint-20", "a torn one and a damaged one are skipped")
    said = "\n".join(got[2])
    ok("checkpoint-100 is not whole and is not used: it has no" in said, said.split("\n")[0])
    ok("checkpoint-30 is not whole and is not used: model" in said, said.split("\n")[-1])
    ok(os.path.isdir("r/checkpoint-100"), "and stay where they are")
    got = find(Alone("r", "r/checkpoint-30"))
    ok("cure: give another one" in got[3], "a damaged one that is given is refused")

    for other in ((3, 4, 1), (2, 8, 1), (2, 4, 2)):
        got = find(Alone("r", "auto"), _choice.Form(*other))
        wanted = "2 ranks with batches of 4 and 1 per step; this run has %d ranks " % other[0]
        ok(wanted in got[3] and "cure: " in got[3], "another form is refused: %s" % (other,))
    got = find(Alone("r", "auto"), _choice.Form(2, -1, 1))
    ok(got[0] == "checkpoint-20", "but not a batch that the Trainer finds")
    make("r/checkpoint-40", 40, evaluate=True)
    ok(find(Alone("r", "auto"))[1] is True, "an evaluation that is to come is told")


class Meeting(Alone):
    """One of several ranks, each a thread."""

    def meet(self, barrier, table, rank):
        self.barrier, self.table, self._rank = barrier, table, rank
        return self

    def _agree(self, values):
        self.table[self._rank] = list(values)
        self.barrier.wait(60)
        result = [max(column) for column in zip(*self.table)]
        self.barrier.wait(60)
        return result


def trainings():
    """Several train() calls of a program share a directory, as the folds of a validation."""
    for step, number in ((3, 1), (6, 1), (2, 2), (4, 3)):
        make("f/checkpoint-%d" % step, step, training=number)
    for how in ({"restart": 1}, {"resume": "auto"}):
        got = [find(Alone("f", **how), number=number, is_first=number == 1) for number in (1, 2, 3, 4)]
        names = [one[0] and os.path.basename(one[0]) for one in got]
        wanted = ["checkpoint-6", "checkpoint-2", "checkpoint-4", None]
        ok(names == wanted, "each takes its own with %s: %s" % (how, names))
    text = "checkpoint-4 is not used: train() number 3 of the program wrote it, and this is number 2"
    ok(any(text in line for line in got[1][2]), "and says of which the others are")
    got = find(Alone("f", "f/checkpoint-4"))
    ok("cannot be used: train() number 3 of the program wrote it" in got[3], "a path of another is refused")
    ok("cure: " in got[3] and "--accel-resume=auto" in got[3], "with the cure")
    ok(find(Alone("f", "f"))[0] == "../f/checkpoint-6", "of a directory the first takes its own")
    for path in ("f/checkpoint-6", "f"):
        got = find(Alone("g", path), is_first=False)
        ok(got == (None, False, [], ""), "%s is for the first train() alone: %s" % (path, got))


def together(directories, checks):
    barrier = threading.Barrier(len(directories))
    table, results = [None] * len(directories), [None] * len(directories)

    def run(rank):
        job = Meeting(directories[rank], "auto").meet(barrier, table, rank)
        results[rank] = find(job, checks=checks[rank])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(directories))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def nodes():
    """Each node has a disk of its own (save_on_each_node)."""
    for step in (10, 11, 12):
        make("a/checkpoint-%d" % step, step)
    for step in (10, 30):
        make("b/checkpoint-%d" % step, step)
    got = together(["a", "a", "b"], [True, False, True])
    same = {os.path.basename(one[0] or "") for one in got}
    ok(same == {"checkpoint-10"}, "the newest that is whole on all nodes: %s" % same)
    os.unlink("b/checkpoint-10/accel.json")
    got = together(["a", "a", "b"], [True, False, True])
    ok([one[0] for one in got] == [None] * 3, "none, if a node has none of these")
    got = together(["a", "nowhere"], [True, False])
    texts = [one[3] for one in got]
    ok(all("not every rank sees" in text for text in texts), "a rank that sees none")
    ok(all("save_on_each_node" in text for text in texts), "ends all, with the cure")


def durable():
    """What is on the disk when the marker gets its name, and when it has lost it."""
    shim, what = os.environ.get("SHIM", ""), "a loss of power takes no file of a marker"
    if not os.path.exists(shim):
        ok(True, what + " # SKIP no shim (shared libraries are off)")
        return
    make("out/d", 1)
    open("log", "w").close()
    program = (
        "from accel_slurm import marker; marker.remove('out/d'); marker.write('out/d', "
        "{'step': 2, 'ranks': 1, 'batch': 1, 'accumulation': 1})"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_PRELOAD": shim, "DISKLOG": os.path.abspath("log")},
        check=True,
    )
    here = os.path.realpath(".") + "/"
    log = [line.rstrip("\n").replace(here, "") for line in open("log")]
    calls = [line for line in log if line.split("\t")[0] in ("sync", "name", "drop")]
    gone = calls.index("drop\tout/d/accel.json")
    named = calls.index("name\tout/d/accel.json.new\tout/d/accel.json")
    files = ["d/model.safetensors", "d/sub/optimizer.pt", "d/rng_state_1.pth"]
    for name in ["", "/d", "/d/sub", "/d/accel.json.new", *["/" + one for one in files]]:
        ok("sync\tout" + name in calls[gone + 2 : named], f"out{name} is synced before")
    ok(calls[gone + 1] == "sync\tout/d", "the old marker's end, before anything else")
    ok(calls[named + 1 :] == ["sync\tout/d"], "and the new one's name")


damage()
writing()
choosing()
trainings()
nodes()
durable()
print("1..%d" % count)
sys.exit(0)
