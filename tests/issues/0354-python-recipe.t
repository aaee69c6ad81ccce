#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: the recipe of doc/python.md had no agreement between ranks: one saved and ended with 85 while
# another one waited for it in the next step, and died.
# The recipe as the page prints it, with a stand-in for torch and accelerate that adds up over
# sockets, in a loop whose every step is a collective: all ranks save the same step and end with
# 85, whichever rank is told, with either signal, in whatever order; and in a job that is
# preempted at a site that sends SIGUSR1, and at one that sends SIGTERM.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
need_plugin
need_program python3
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml

# Its two blocks: what stands before the loop, and what ends each step.
awk '/^## /{ on = /^## Preemption/ }
    on && /^    /{ if (!block) n++; block = 1; print substr($0, 5) >("recipe." n) }
    on && !/^    /{ if (/./) block = 0; else if (block) print "" >("recipe." n) }' "$ACCEL_SRC/doc/python.md"
[ -s recipe.1 ] && [ -s recipe.2 ] && grep -q told_to_stop recipe.2
ok $? "the page has both blocks" || diag "$(cat recipe.*)"

cat >train.py <<'TRAIN'
import os, socket, struct, sys, time, types

rank, size, out = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", place[1]))
    server.listen(size)
    peers = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(place)]
            break
        except OSError:
            time.sleep(0.05)


def get(peer):
    data = b""
    while len(data) < 8:
        part = peer.recv(8 - len(data))
        if not part:
            raise RuntimeError("connection closed by peer")
        data += part
    return struct.unpack("d", data)[0]


class Number(float):
    def item(self):
        return float(self)


class Accelerator:
    device = "cpu"

    def reduce(self, x, reduction="sum"):
        if rank:
            peers[0].sendall(struct.pack("d", x))
            return Number(get(peers[0]))
        total = x + sum(get(p) for p in peers)
        for p in peers:
            p.sendall(struct.pack("d", total))
        return Number(total)

    def wait_for_everyone(self):
        self.reduce(0.0)

    def save_state(self, name):
        time.sleep(0.1 * (rank + 1))  # no two ranks take the same time
        with open(f"{out}.saved", "a") as f:
            f.write(f"{rank} {step}\n")


sys.modules["torch"] = types.SimpleNamespace(tensor=lambda x, device: Number(x))
accelerator = Accelerator()
exec(compile(open("recipe.1").read(), "recipe.1", "exec"))
ends = compile(open("recipe.2").read(), "recipe.2", "exec")
first = os.environ.get("ACCEL_RESTART_COUNT", "0") == "0"
step = 0
while first or step < 3:
    step += 1
    assert accelerator.reduce(float(step)) == size * step, "the ranks are at different steps"
    time.sleep(0.002)
    if step == 20:
        open(f"{out}.pid.{rank}", "w").write(str(os.getpid()))
    exec(ends)
TRAIN

# shellcheck disable=SC2317 # called by wait_until
runs() { # OUT
    [ -s "$1.pid.0" ] && [ -s "$1.pid.1" ]
}

saved() { # OUT: "RANKS at STEPS"
    echo "$(cut -d' ' -f1 "$1.saved" 2>/dev/null | sort | paste -sd ' ') at $(cut -d' ' -f2 "$1.saved" | sort -u | wc -l)"
}

# ---- signals some steps apart: SIGNAL:RANK...
row() {
    out=$(echo "$*" | tr ' :' '__')
    "$ACCEL_BUILD/accel" launch --config two.yaml train.py "$out" >"$out.out" 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher KILL
    wait_until runs "$out"
    for notice; do
        kill -s "${notice%:*}" "$(cat "$out.pid.${notice#*:}")"
        sleep 0.03
    done
    wait $launcher
    is $? 85 "$*: ends with 85" || diag "$(cat "$out.out")"
    is "$(saved "$out")" "0 1 at 1" "$*: both ranks save the same step"
}
for signal in USR1 TERM; do
    row $signal:0 $signal:1
    row $signal:1 $signal:0
    row $signal:1
done
row USR1:0 TERM:1 TERM:0

# ---- in a job, with the notice of each kind of site
preempted() { # NAME CLUSTER-OPTION...
    name=$1
    shift
    cluster_up --nodes 1 --cpus 4 --mode plain --grace 30 "$@"
    timeout "$HANG_S" srun --accel-config=two.yaml python3 train.py "$name" >"$name.out" 2>&1 </dev/null &
    limit=$!
    wait_until runs "$name"
    timeout "$HANG_S" srun -Q -p high --exclusive -n1 --accel-config=none true
    wait $limit
    is $? 0 "$name: the run comes back and ends" || diag "$(cat "$name.out")"
    is "$(saved "$name")" "0 1 at 1" "$name: both ranks have saved the same step"
    is "$(grep -c 'was preempted with its state saved (exit 85); requesting a new allocation' "$name.out")" 1 \
        "$name: once, as a saved one"
    no_node_drained
    ok $? "$name: no node is drained"
    cluster_down
}
preempted usr1
preempted term --notice term
done_testing
