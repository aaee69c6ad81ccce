#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Where Python programs run: a virtual environment, with site hooks of its own and of conda's
# kind; a notebook's kernel; a container whose tasks see neither scontrol nor their home as it
# is. The hooks run as without accel, and a stop saves and comes back.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_program python3
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
built_with_sanitizer && skip_all "python3 has no sanitizer runtime"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
unset ACCEL_PYTHON_TRAINER ACCEL_RESUME ACCEL_RESTART_COUNT ACCEL_RANK RANK WORLD_SIZE
unset SLURM_JOB_ID TORCHELASTIC_ERROR_FILE ACCEL_STEP_REPORTS PYTHONPATH XDG_STATE_HOME
{ mkdir home there elsewhere && ln -s "$ACCEL_BUILD/.libs" there/lib; } || bail_out "no directory"
HOME=$tap_tmp/home PYTHONUSERBASE=$tap_tmp/user ACCEL_ROOT=$tap_tmp/there PYTHONDONTWRITEBYTECODE=1
export HOME PYTHONUSERBASE ACCEL_ROOT PYTHONDONTWRITEBYTECODE
site=$ACCEL_SRC/python/site

# ---- virtual environments and site hooks
packages() { # ENVIRONMENT: its site-packages
    echo "$1"/lib/python*/site-packages
}
said() { # PYTHONPATH ENVIRONMENT ARG...: both streams of its python
    path=$1 env=$2
    shift 2
    ACCEL_PYTHON_TRAINER=1 PYTHONPATH=$path timeout "$HANG_S" "$env/bin/python" "$@" 2>&1 </dev/null
}
ended() { # PYTHONPATH: what a program says, without the frames of tracebacks, and its code
    said "$1" shared -c 'print("program")' >ended.out
    rc=$?
    grep -v '^  ' ended.out
    echo $rc
}
mkdir elsewhere/transformers
: >elsewhere/transformers/__init__.py
echo 'class Trainer: pass' >elsewhere/transformers/trainer.py
for options in own "--system-site-packages shared"; do
    # shellcheck disable=SC2086
    python3 -m venv --without-pip $options ||
        skip_all "python3 makes no virtual environments"
done
user=$(said '' shared -c 'import site; print(site.getusersitepackages())')
mkdir -p "$user"
echo 'print("usercustomize")' >"$user/usercustomize.py"
for env in own shared; do
    echo 'print("sitecustomize", __name__, __file__)' >"$(packages $env)/sitecustomize.py"
    echo 'import sys; print(".pth")' >"$(packages $env)/hook.pth"
    for python in '' "$ACCEL_SRC/python:$tap_tmp/elsewhere"; do
        is "$(said "$site:$python" $env -c 'print("program")')" "$(said "$python" $env -c 'print("program")')" \
            "$env${python:+, torch elsewhere}: its hooks run as without accel"
    done
    like "$(said "$site:$python" $env -c 'import transformers.trainer')" \
        '^accel: warning: this transformers has no Trainer.train' \
        "$env: a module from elsewhere on PYTHONPATH is changed"
done
# On PYTHONPATH, since Debian's own hides that of an environment.
mkdir hooks
echo 'print("sitecustomize")' >hooks/sitecustomize.py
is "$(said "$site:$tap_tmp/hooks" shared -c 'print("program")' | sed '/pth/d; s/ .*//' | paste -sd ' ')" \
    "sitecustomize usercustomize program" "each of them once"
for hook in sitecustomize usercustomize; do
    for error in 'raise ValueError("its own")' 'import no_such_module' 'raise SystemExit(3)'; do
        mkdir broken
        echo "$error" >broken/$hook.py
        is "$(ended "$site:$tap_tmp/broken")" "$(ended "$tap_tmp/broken")" "$hook, $error: as without accel"
        rm -r broken
    done
done
cp -r "$site" other-site
out=$(said "$site:$tap_tmp/other-site:$tap_tmp/hooks:$tap_tmp/elsewhere:$ACCEL_SRC/python" own -c 'import transformers.trainer; print("program")')
is "$(printf '%s\n' "$out" | grep -c '^sitecustomize')/$(printf '%s\n' "$out" | tail -n 1)" 1/program \
    "two installations of accel: the hook behind them still runs once"

# ---- without PYTHONPATH
out=$(said "$ACCEL_SRC/python" own -I -c 'import accel_slurm')
like "$out" "^ModuleNotFoundError: No module named 'accel_slurm'$" "python -I sees no module of PYTHONPATH"
echo "$ACCEL_SRC/python" >"$(packages own)/accel.pth"
for flag in -I -E; do
    out=$(said '' own $flag -c 'import accel_slurm
job = accel_slurm.job("isolated"); print(job.should_stop()); job.finish()')
    is "$(printf '%s\n' "$out" | tail -n 1)" False "python $flag: an environment that has the package"
done

# ---- a notebook
unset PYTHONUSERBASE
PYTHONPATH=$ACCEL_SRC/python
export PYTHONPATH
python=${PEERS_PYTHON:-python3}
cat >loop.py <<'LOOP'
import os, signal, sys, time
import accel_slurm

def train(name, send=0, steps=100000):
    job = accel_slurm.job("checkpoints-" + name)
    state = "state-" + name
    last = int(open(state).read()) if os.path.exists(state) else 0
    print("restart", job.restart, "process", os.getpid(), "of user", os.getuid(), flush=True)
    def save():
        with open(state + ".new", "w") as file:
            file.write(str(step))
        os.replace(state + ".new", state)
    for step in range(last + 1, last + (3 if job.restart else steps) + 1):
        time.sleep(0.01)
        if step == 3:
            open("runs-" + name, "w").close()
            if send:
                os.kill(os.getpid(), send)
        if job.should_stop():
            job.save(step, save)
            break
    job.finish()
    print("finished after", last, flush=True)

if __name__ == "__main__":
    train(sys.argv[1])
LOOP
cat >cells.py <<'CELLS'
import sys; sys.path.insert(0, ""); from loop import *
train("cell", steps=5)
# ---
train("cell", steps=5)
# ---
train("cell", signal.SIGTERM)
# ---
print("lives", os.path.exists("state-cell"))
# ---
train("interrupted", signal.SIGINT)
# ---
train("interrupted", steps=5)
CELLS
if [ -z "${PEERS_REASON:-}" ] && "$python" -c 'import nbclient, ipykernel' 2>/dev/null; then
    notebook=yes
    timeout "$HANG_S" "$python" "$ACCEL_SRC/tests/data/python/notebook.py" cells.py >notebook.out 2>notebook.err
    out=$(cat notebook.out)
    is "$(printf '%s\n' "$out" | grep -c '^[01]: finished after 0$')" 2 "a notebook: a cell trains, and again" ||
        diag "$out"
    like "$out" '^2: accel: stopped .*the state of step 3 is saved' "SIGTERM to the kernel: it saves"
    like "$out" '^2: SystemExit: 85' "and ends the cell"
    like "$out" '^3: lives True' "but not the kernel"
    like "$out" '^4: KeyboardInterrupt' "Ctrl-C is Python's"
    like "$out" '^5: finished after 0' "and the cell can be run again"
    like "$out" '^ended 0$' "the code of the kernel is its own"
    unlike "$out" 'in a notebook a stop' "without Slurm nothing comes back anyway"
else
    notebook=
    skip 8 "${PEERS_REASON:-$python has no nbclient or no ipykernel}"
fi

# ---- a container, and a notebook, as steps
cat >contain.sh <<'CONTAIN'
#!/bin/sh
# contain.sh COMMAND...: the first process of a container
exec unshare --user --map-root-user --mount --uts --pid --fork sh -c '
    hostname inside && mount -t tmpfs -o ro none /dev/shm &&
        mount --bind /dev/null "$(command -v scontrol)" &&
        mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME" || exit 9
    exec unshare --user --map-user=1000 --map-group=1000 "$@"' sh "$@"
CONTAIN
cat >job.sh <<'JOB'
#!/bin/sh
srun "$@"
JOB
chmod +x contain.sh job.sh
high() {
    timeout "$HANG_S" srun -Q -p high -n1 --exclusive --accel-config=none true
}
bare() { # NAME COMMAND...: preempted once it trains; its output in NAME.out, srun's code in $rc
    name=$1
    shift
    timeout "$HANG_S" srun -n1 --accel-config=one.yaml "$@" >"$name.out" 2>&1 </dev/null &
    step=$!
    wait_until test -e "runs-$name"
    high
    wait $step
    rc=$?
}
saved_and_back() { # NAME
    like "$(cat "$1.out")" '^accel: stopped .*the state of step [0-9]+ is saved' "$1: it saves"
    like "$(cat "$1.out")" "^finished after $(sed -n 's/.*the state of step \([0-9]*\) is saved.*/\1/p' "$1.out")\$" \
        "$1: and goes on there"
}
if ! plugin_loads || ! command -v slurmctld >/dev/null; then
    skip 24 "Slurm or the plugin is missing"
elif ! ./contain.sh true 2>/dev/null; then
    skip 24 "this system allows no user namespaces"
else
    printf 'distributed_type: "NO"\nuse_cpu: true\n' >one.yaml
    for notice in term user; do
        cluster_up --nodes 1 --cpus 2 --grace 60 --notice $notice
        bare "bare-$notice" ./contain.sh python3 loop.py "bare-$notice"
        is $rc 0 "a container, notice $notice: it ends" || diag "$(cat "bare-$notice.out")"
        like "$(cat "bare-$notice.out")" '^restart 0 process 1 of user 1000$' "in namespaces of its own"
        like "$(cat "bare-$notice.out")" '^accel:   the requeue request failed; srun will try' "it says who asks"
        like "$(cat "bare-$notice.out")" 'requesting a new allocation \(restart 1' "and srun does"
        saved_and_back "bare-$notice"
        [ $notice = user ] || cluster_down
    done
    job=$(timeout "$HANG_S" sbatch --parsable -n1 --accel-config=one.yaml -o batch.out job.sh ./contain.sh python3 loop.py batch)
    wait_until test -e runs-batch
    high
    wait_for_job "$job" 'COMPLETED|FAILED|CANCELLED'
    like "$(cat batch.out)" "accel: job $job was preempted with its state saved \\(exit 85\\); requeued as restart 1" \
        "a batch job: srun asks for the requeue"
    saved_and_back batch
    timeout "$HANG_S" srun -n1 --accel-config=one.yaml python3 loop.py two >two.out 2>&1 </dev/null &
    first=$!
    wait_until test -e runs-two
    run_srun -n1 --accel-config=one.yaml python3 loop.py two
    is "$srun_rc" 1 "a second job in the directory of another one: it fails"
    like "$srun_out" 'A0822: .*checkpoints-two: another run is using this directory: job [0-9]+ \(restart 0\)' \
        "it names that job"
    like "$srun_out" 'cure: wait for that run .* accel_slurm.job' "and the cure"
    like "$srun_out" 'rank 0 \(n[0-9]+\) failed first: Error: .*another run is using' "srun names the rank, too"
    timeout "$HANG_S" scancel --state=RUNNING
    wait $first
    like "$(cat two.out)" '^accel: stopped \(cancelled\); the state of step [0-9]+ is saved' "the first one goes on"
    if [ -n "$notebook" ]; then
        echo 'import sys; sys.path.insert(0, ""); from loop import *
train("notebook")' >step.py
        bare notebook "$python" "$ACCEL_SRC/tests/data/python/notebook.py" step.py
        sed -i 's/^[0-9]: //' notebook.out
        like "$(cat notebook.out)" '^accel: warning: in a notebook a stop ends the cell.*run what is to come back as a script' \
            "a notebook as a step: it is told"
        saved_and_back notebook
    else
        skip 3 "no notebook"
    fi
    no_node_drained
    ok $? "no node is drained"
    cluster_down
fi
done_testing
