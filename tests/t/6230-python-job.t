#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel_slurm in one process, without torch: what an import costs, a job that is stopped and
# comes back, one that never saves, every error with its cure, and what is written for srun.
. "$(dirname "$0")/tap.sh"

command -v python3 >/dev/null || skip_all "python3 is not installed"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
built_with_sanitizer && skip_all "python3 has no sanitizer runtime"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
mkdir root || bail_out "no directory"
ln -s "$ACCEL_BUILD/.libs" root/lib
unset RANK WORLD_SIZE ACCEL_RANK LD_LIBRARY_PATH ACCEL_STEP_REPORTS TORCHELASTIC_ERROR_FILE
unset ACCEL_RESTART_COUNT ACCEL_RESUME
export ACCEL_ROOT="$tap_tmp/root" PYTHONPATH="$ACCEL_SRC/python" PYTHONDONTWRITEBYTECODE=1
command -v timeout >/dev/null || skip_all "timeout is not installed"

python() { # ARG...: both streams in $out, the exit code in $rc
    out=$(timeout "$HANG_S" python3 "$@" 2>&1 </dev/null)
    rc=$?
}

# ---- the import
python -c 'import ctypes, os, sys; before = set(sys.modules); import accel_slurm
print(sorted(m for m in set(sys.modules) - before if not m.startswith("accel_slurm")))'
is "$out" "['__future__']" "an import takes nothing but ctypes and os with it"
ACCEL_ROOT=/nowhere python -c 'import accel_slurm; print("imported")'
is "$out" imported "without the library the package can be imported"
ACCEL_ROOT=/nowhere python -c 'import accel_slurm
try: accel_slurm.job("d")
except ImportError as e: print(isinstance(e, accel_slurm.Error), e)'
like "$out" '^True libacceljob.so cannot be loaded .*tried /nowhere/lib/libacceljob.so' \
    "the first use says where it was looked for"
like "$out" '^  cure: run .module load accel., or set ACCEL_ROOT' "and the cure"
mkdir -p other/lib && ln -s "$ACCEL_BUILD/.libs/libaccelckpt.so" other/lib/libacceljob.so
ACCEL_ROOT=$tap_tmp/other python -c 'import accel_slurm; accel_slurm.job("d")'
like "$out" 'LibraryMissing: .*other/lib/libacceljob.so does not fit this accel_slurm: .*accel_attempt_open' \
    "a library of another kind is named"

# ---- stopped, and back
cat >loop.py <<'LOOP'
import os, sys, time
import accel_slurm

job = accel_slurm.job(sys.argv[1])
print("restart", job.restart, "run", job.run_id, "resume", job.resume, "left", job.seconds_left(),
      flush=True)
last = int(open("state").read()) if os.path.exists("state") else 0
def save():
    open("state.new", "w").write(str(step))
    os.replace("state.new", "state")
for step in range(last + 1, last + int(sys.argv[2]) + 1):
    if not os.path.exists("pid"):
        open("pid.new", "w").write(str(os.getpid()))
        os.replace("pid.new", "pid")
    time.sleep(0.01)
    if job.should_stop():
        assert job.stopping and job.should_stop()
        print("saved", job.save(step, save), "left", job.seconds_left() > 0, flush=True)
        break
else:
    print("saved", job.save(step, save), flush=True)
job.finish()
print("done", flush=True)
LOOP
# shellcheck disable=SC2317 # called by wait_until
runs() {
    [ -s pid ]
}
wait_until() { # CMD [ARG]...
    deadline=$(($(date +%s) + HANG_S))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}
stopped() { # SIGNAL COMMAND...: sends it once the loop runs
    rm -f pid
    signal=$1
    shift
    # A shell has its background programs ignore SIGINT.
    timeout --foreground -s KILL "$HANG_S" env --default-signal=INT "$@" >out 2>&1 </dev/null &
    started=$!
    kill_at_exit $started KILL
    wait_until runs || bail_out "the loop does not run: $(cat out)"
    kill -s "$signal" "$(cat pid)"
    wait $started
    rc=$?
    out=$(cat out)
}
python loop.py checkpoints 3
is "$rc" 0 "a job that nobody stops ends 0" || diag "$out"
like "$out" '^restart 0 run local-[0-9a-f]* resume None left inf$' "its first attempt"
is "$(echo "$out" | tail -n 1)" "done" "finish returns"
first=$(echo "$out" | sed -n 's/.* run \([^ ]*\).*/\1/p')
for signal in TERM USR1; do
    stopped $signal python3 loop.py checkpoints 1000000
    is "$rc" 85 "SIG$signal: it ends 85"
    like "$out" '^saved True left True$' "SIG$signal: and saves"
    like "$out" "^accel: stopped .*the state of step $(cat state) is saved" \
        "SIG$signal: which it says"
    unlike "$out" '^done' "SIG$signal: nothing runs after finish"
done
ACCEL_RESTART_COUNT=1 ACCEL_RESUME=auto python loop.py checkpoints 1
like "$out" "^restart 1 run $first resume auto " "the next attempt is counted and has the same name" ||
    diag "$out"
stopped INT python3 loop.py checkpoints 1000000
like "$out" '^KeyboardInterrupt' "Ctrl-C in a program started by hand stays Python's"
printf 'use_cpu: true\ndistributed_type: "NO"\n' >one.yaml
stopped INT "$ACCEL_BUILD/accel" launch --config one.yaml loop.py checkpoints 1000000
is "$rc" 75 "under accel launch it ends 75" || diag "$out"
like "$out" '^saved True' "and saves"

# ---- a save that takes longer than what is left
mkdir slow
echo '2026-01-01T00:00:00Z job=0 of=0 restart=0 save step=1 seconds=9000.000' >slow/history
ACCEL_PREEMPTION_NOTICE='p REQUEUE 0 30' python -c 'import accel_slurm, os, signal
job = accel_slurm.job("slow")
os.kill(os.getpid(), signal.SIGTERM)
assert job.should_stop()
print("saved", job.save(7, lambda: print("begun")))
job.finish()'
is "$rc $(echo "$out" | grep -v '^accel')" "85 saved False" "it is not begun, and the program knows" || diag "$out"
like "$out" 'step 7 is not saved: a checkpoint takes about [0-9.]* s, and [0-9.]* s are left of KillWait' "and says why"

# ---- the exit code: what dies when the interpreter is torn down does not change it
cat >teardown.py <<'TEARDOWN'
import atexit, os, signal, sys
import accel_slurm

class Fatal:
    def __del__(self):
        os.abort()

fatal = Fatal()
atexit.register(print, "first handler")
job = accel_slurm.job("teardown")
atexit.register(print, "last handler")
os.kill(os.getpid(), signal.SIGTERM)
assert job.should_stop()
sys.stdout.write("not flushed\n")
try:
    job.finish()
finally:
    print("finally")
TEARDOWN
python teardown.py
is "$rc" 85 "an abort in the teardown does not change the exit code" || diag "$out"
is "$(echo "$out" | grep -v '^accel:' | paste -sd ' ')" "not flushed finally last handler first handler" \
    "exit handlers run before it, each once, and all output is there"
python -c 'import accel_slurm, os, signal
job = accel_slurm.job("forks")
os.kill(os.getpid(), signal.SIGTERM)
assert job.should_stop()
try:
    job.finish()
except SystemExit:
    child = os.fork()
    if not child:
        raise SystemExit(3)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    raise'
is "$rc $(echo "$out" | grep -v '^accel')" "85 child 3" "a child that is forked then ends with its own" || diag "$out"
python -c 'import accel_slurm, os, signal
job = accel_slurm.job("forked")
os.kill(os.getpid(), signal.SIGTERM)
assert job.should_stop()
child = os.fork()
if not child:
    raise SystemExit(3)
os.waitpid(child, 0)
job.finish()'
is "$rc $(echo "$out" | grep -c "ended without job.finish")" "85 0" "and does not finish the job of its parent" ||
    diag "$out"

# ---- attempts of a job of Slurm that save nothing, because they are killed before
attempt() { # NUMBER COMMAND
    SLURM_JOB_ID=4711 ACCEL_FIRST_JOB_ID=4711 ACCEL_RESTART_COUNT=$1 python -c \
        "import accel_slurm; job = accel_slurm.job('barren'); print('restart', job.restart); $2"
}
for number in 0 1 2; do
    attempt $number ""
    is "$rc $(echo "$out" | grep ^restart)" "0 restart $number" "attempt $number begins" || diag "$out"
done
attempt 3 ""
is "$rc" 75 "after three in a row that saved nothing the job stops" || diag "$out"
like "$out" '^accel: the last 3 attempts of job 4711 have saved nothing' "and says why"
like "$out" '^accel:   save sooner or faster' "and the cure"

# ---- what is wrong, where, and the cure
: >file
python -c 'import accel_slurm; accel_slurm.job("file/below")'
is "$rc" 1 "a directory that cannot be made is an exception"
like "$out" 'Error: A0803: .*file/below: cannot create .*: Not a directory' "with its number and place"
like "$out" '^  cure: check the path' "and the cure"
python -c 'import accel_slurm
one = accel_slurm.job("a")
assert accel_slurm.job("a") is one and accel_slurm.job("./a") is one
try: accel_slurm.job("b")
except accel_slurm.Error as e: print(e)
one.finish(); one.finish()
try: one.should_stop()
except accel_slurm.Error as e: print(e)
accel_slurm.job("b").finish()
with accel_slurm.job("c") as job: job.save(1, lambda: None)
print("open" if not job._closed else "closed")'
like "$out" 'this process has a job in .*/a already' "a second directory is refused"
like "$out" 'Job.should_stop: the job is finished' "a finished job is finished"
is "$(echo "$out" | tail -n 1)" closed "a with block finishes its job" || diag "$out"
python -c 'import accel_slurm, os
job = accel_slurm.job("a")
if os.fork() == 0:
    try: job.should_stop()
    except accel_slurm.Error as e: print(e, flush=True)
    os._exit(0)
os.wait()'
like "$out" "the job is another process's" "a forked process has no part in it"
WORLD_SIZE=2 RANK=0 python -c 'import accel_slurm
job = accel_slurm.job("a")
for call in job.should_stop, lambda: job.save(1, print):
    try: call()
    except accel_slurm.Error as e: print(e)'
is "$(echo "$out" | grep -c 'WORLD_SIZE is 2, but torch.distributed has no process group')" 2 \
    "several ranks without a process group are refused" || diag "$out"
like "$out" 'cure: call torch.distributed.init_process_group, or make the Accelerator' "with the cure"
WORLD_SIZE=two python -c 'import accel_slurm; accel_slurm.job("a")'
like "$out" "WORLD_SIZE is 'two', not a number" "so is a number that is none"
python -c 'import accel_slurm, signal
signal.signal(signal.SIGTERM, lambda *_: None)
accel_slurm.job("a").finish()'
like "$out" '^accel: warning: the program handles SIGTERM itself.*remove that handler' \
    "a handler of the program is pointed out"
python -c 'import accel_slurm, os, signal
job = accel_slurm.job("a")
os.kill(os.getpid(), signal.SIGTERM)
print(job.should_stop())'
like "$out" '^accel: warning: the job was told to stop, but the program has ended without job.finish' \
    "so is a stop without a finish"
rm -f pid
python3 loop.py held 1000000 >held.out 2>&1 &
holder=$!
kill_at_exit $holder KILL
wait_until runs
python -c 'import accel_slurm; accel_slurm.job("held")'
like "$out" 'Error: A[0-9]*: .*held: .*another run' "a directory of a run that goes on is refused" ||
    diag "$out"
kill -s TERM $holder
wait $holder

# ---- what srun reads
cat >fail.py <<'FAIL'
import json
import sys
import accel_slurm

job = accel_slurm.job("a")
def parse(text):
    return json.loads(text)
if sys.argv[1] == "exit":
    sys.exit(3)
parse(sys.argv[1])
FAIL
note() { # FIELD: of reports/0/error.json
    python3 -c 'import json, sys; m = json.load(open("reports/0/error.json"))["message"]
print({**m, **m["extraInfo"]}[sys.argv[1]])' "$1"
}
export TORCHELASTIC_ERROR_FILE="$tap_tmp/reports/0/error.json"
RANK=0 python fail.py exit
[ ! -e reports ]
ok $? "an exit code is no exception to note"
python fail.py '{'
is "$rc" 1 "an exception ends the program with 1"
like "$out" '^json.decoder.JSONDecodeError' "Python still prints it"
like "$(note message)" '^JSONDecodeError: Expecting property name' "its message is noted"
is "$(note exception) $(note rank) $(note line)" "JSONDecodeError 0 7" \
    "with type, rank and the line of the program, not that of a library"
is "$(note file)" "$tap_tmp/fail.py" "and its file" || diag "$(cat reports/0/error.json)"
like "$(note py_callstack)" '^Traceback' "and the traceback, as torch has it"
python fail.py x
like "$(note message)" 'Expecting property name' "the first exception stays"
like "$(note time_ns)" '^[0-9]{19}$' "and a time by which srun orders what ranks tell"
blame() { # EXCEPTION: is another rank to blame?
    rm reports/0/error.json
    python -c "import accel_slurm, accel_slurm.failures
accel_slurm.failures.install()
raise $1"
    note blames_another 2>&1 | tail -n 1
}
is "$(blame 'accel_slurm.Error(9, "another rank is gone")')" 1 "who has lost another rank says so"
is "$(blame 'accel_slurm.Error(8, "not writable")')" "KeyError: 'blames_another'" "other errors do not"
rm reports/0/error.json
python -c 'import accel_slurm.failures
accel_slurm.failures.install()
raise MemoryError'
is "$(note message)" MemoryError "an exception without a text has its type"
TORCHELASTIC_ERROR_FILE=$tap_tmp/file/0/error.json python fail.py '{'
is "$(echo "$out" | tail -n 1 | cut -d: -f1)" json.decoder.JSONDecodeError \
    "where it cannot be written, the exception is as ever"
unset TORCHELASTIC_ERROR_FILE
ACCEL_STEP_REPORTS=$tap_tmp/steps/1 python -c 'import accel_slurm
job = accel_slurm.job("a")
print(open("steps/1/job").read(), end="")
job.save(7, lambda: None); job.save(9, lambda: None); job.finish()'
is "$(echo "$out" | grep -v '^accel')" "opened $tap_tmp/a" "the directory is reported" || diag "$out"
is "$(cat steps/1/job)" "opened $tap_tmp/a
saved 9" "then the last save"
is "$(stat -c %a steps/1)" 700 "for nobody else"
ACCEL_STEP_REPORTS=$tap_tmp/file/1 python loop.py quiet 1
is "$rc $(echo "$out" | grep -c -i report)" "0 0" "what cannot be reported is left out"

# torch may come after the job, and many programs first ask whether it is there.
python -c 'import importlib.util, accel_slurm._imports as imports
imports.when_imported("colorsys", lambda module: print("action on", module.__name__))
print(importlib.util.find_spec("colorsys") is not None, importlib.util.find_spec("colorsys").name)
import colorsys
imports.when_imported("colorsys", lambda module: print("at once"))
print(colorsys.rgb_to_hsv(0, 0, 0))'
is "$out" "True colorsys
action on colorsys
at once
(0.0, 0.0, 0)" "what waits for a module is done once, when the module is imported"
done_testing
