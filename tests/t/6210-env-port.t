#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# One rendezvous port per step: many steps of many jobs at the same time, on nodes that share
# one network, never get the same; a port that is held is passed over, or refused on the node.
# What the tasks expand stands in single quotes.
# shellcheck disable=SC2016
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
need_program python3
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
cluster_up --nodes 2 --mode mnt --cpus 64
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\n' >any.yaml

# 24 steps at once: three jobs of four steps in batch, twelve bare ones. Each binds its port
# and keeps it until all have.
cat >bind.py <<'BIND'
import os, socket, sys, time
port = int(os.environ["MASTER_PORT"])
s = socket.socket()
s.bind(("", port))
s.listen()
with open(sys.argv[1] + "/%s.%s" % (os.environ["SLURM_JOB_ID"], os.environ["SLURM_STEP_ID"]), "w") as f:
    f.write("%d\n" % port)
end = time.monotonic() + 90
while len(os.listdir(sys.argv[1])) < int(sys.argv[2]) and time.monotonic() < end:
    time.sleep(0.05)
BIND
mkdir ports
cat >steps.sh <<JOB
#!/bin/sh
for i in 1 2 3 4; do srun -n1 -N1 --overlap --mpi=none python3 bind.py "$tap_tmp/ports" 24 & done
wait
JOB
jobs=
for i in 1 2 3; do
    jobs="$jobs $(timeout "$HANG_S" sbatch --parsable -n4 -N1 -o batch.%j --accel-config=any.yaml steps.sh)"
done
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    timeout -k 5 "$HANG_S" srun -Q -n1 --mpi=none --accel-config=any.yaml \
        python3 bind.py "$tap_tmp/ports" 24 >"bare.$i" 2>&1 &
done
wait
for job in $jobs; do
    wait_for_job "$job" 'COMPLETED|FAILED'
done
is "$(find ports -type f | wc -l)" 24 "24 steps at once have bound their ports" || diag "$(cat bare.* batch.*)"
is "$(cat ports/* | sort -u | wc -l)" 24 "no two are the same"
is "$(cat ports/* | awk '$1 < 15000 || $1 > 29386')" "" "all are of the range"

# Steps of one job have neighbouring first choices: somebody holds the next ones.
cat >hold.py <<'HOLD'
import os, socket, subprocess, sys
first = int(os.environ["MASTER_PORT"])

def hold(how, port):
    if how == "claim":
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind("\0accel-rank0-%d" % port)
        return s
    s = socket.socket()
    if how == "linger": # a server that ended first leaves its side of a connection
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.listen()
    if how == "linger":
        client = socket.socket()
        client.connect(("127.0.0.1", port))
        s.accept()[0].close()
        client.close()
        s.close()
    return s

held = {}
for port in range(first + 1, first + 40):
    try:
        held[port] = hold(sys.argv[1], port)
    except OSError: # somebody else's: the next ones are enough
        pass
out = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, timeout=60).stdout
print("skipped" if held and int(out) not in held else "taken " + out.decode())
HOLD
for how in listen linger claim; do
    cat >job.sh <<JOB
#!/bin/sh
port=\$(srun -Q -n1 -N1 --mpi=none sh -c 'echo \$MASTER_PORT')
MASTER_PORT=\$port python3 hold.py $how env -u MASTER_PORT srun -Q -n1 -N1 --mpi=none \\
    sh -c 'echo \$MASTER_PORT'
JOB
    job=$(timeout "$HANG_S" sbatch --parsable -n1 -o "$how.out" --accel-config=any.yaml job.sh)
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(cat "$how.out")" "skipped" "ports that another process holds ($how) are skipped"
done
cluster_down

# Started on another host, srun cannot see who holds a name on the node: rank 0 does.
if can_net_mode; then
    cluster_up --nodes 1 --mode net
    cat >fence.py <<'FENCE'
import os, socket, sys, time
port = int(os.environ["MASTER_PORT"])
held = []
for p in range(port + 1, port + 4):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("\0accel-rank0-%d" % p)
    held.append(s)
open(sys.argv[1], "w").close()
end = time.monotonic() + int(os.environ["HANG_S"])
while not os.path.exists(sys.argv[2]) and time.monotonic() < end:
    time.sleep(0.05)
FENCE
    cat >two.sh <<'TWO'
srun -Q -n1 --overlap --mpi=none --accel-config=any.yaml python3 fence.py held done &
end=$(($(date +%s) + HANG_S))
until [ -e held ] || [ "$(date +%s)" -ge $end ]; do sleep 0.05; done
srun -Q -n1 --overlap --mpi=none --accel-config=any.yaml sh -c 'echo ran'
echo "exit $?"
: >done
wait
TWO
    out=$(timeout "$HANG_S" salloc -Q -n1 sh two.sh 2>&1)
    like "$out" 'error\[A0315\]: MASTER_PORT: port [0-9]+ is already used by another run' \
        "a port whose name is held on the node is refused there"
    like "$out" '^exit 1$' "with 1"
    unlike "$out" '^ran' "and nothing runs"
    no_node_drained
    ok $? "the node stays well"
else
    skip 4 "network namespaces need root"
fi
done_testing
