#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The sitecustomize of accel.python.trainer: it runs the one it hides, waits for the modules that
# it changes, harms no program, and costs a start next to nothing. Without torch.
. "$(dirname "$0")/tap.sh"

command -v python3 >/dev/null || skip_all "python3 is not installed"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
mkdir -p hidden fake/transformers fake/accel_slurm pkg || bail_out "no directory"
unset ACCEL_ROOT ACCEL_PYTHON_TRAINER
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
site=$ACCEL_SRC/python/site

on() { # ARG...: python3 as srun starts it; both streams in $out
    out=$(ACCEL_PYTHON_TRAINER=1 PYTHONPATH=$site:$tap_tmp/hidden:$tap_tmp/fake \
        timeout "$HANG_S" python3 "$@" 2>&1)
    rc=$?
}

# ---- what it hides
echo 'print("hidden", __name__, __file__)' >hidden/sitecustomize.py
on -c 'import sitecustomize; print(sitecustomize.__file__)'
is "$out" "hidden sitecustomize $tap_tmp/hidden/sitecustomize.py
$tap_tmp/hidden/sitecustomize.py" "the sitecustomize that it hides runs, and stands in its place"
out=$(PYTHONPATH=$site:$tap_tmp/hidden python3 -c 'import sys; print(sys.meta_path[0])' 2>&1)
like "$out" '^hidden sitecustomize' "also where the key is not set"
unlike "$out" 'sitecustomize._Finder' "and nothing waits then"
echo 'raise ValueError("its own")' >hidden/sitecustomize.py
on -c 'print("runs")'
like "$out" 'ValueError: its own' "an error of the hidden one is told as Python tells it"
like "$out" '^runs$' "and the program runs"
on -I -c 'import sys; print(sys.meta_path)'
unlike "$out" '_Finder|its own' "python -I leaves all of it out"
on -E -c 'import sys; print(sys.meta_path)'
unlike "$out" '_Finder|its own' "so does python -E"
rm hidden/sitecustomize.py

# ---- the modules it waits for: stand-ins, so that no torch is needed
: >fake/transformers/__init__.py
echo 'class Trainer: pass' >fake/transformers/trainer.py
: >fake/accel_slurm/__init__.py
cat >fake/accel_slurm/trainer.py <<'END'
def install(module):
    print("changes", module.__name__, module.Trainer.__name__)
END
on -c 'import sys; print([m for m in ("accel_slurm", "ctypes") if m in sys.modules])'
is "$out" "[]" "a program that imports no transformers gets nothing of it"
on -c 'import importlib.util as u
print(u.find_spec("transformers.trainer") is not None); import transformers.trainer'
is "$out" "True
changes transformers.trainer Trainer" "the module is changed after its own code; asking for it changes nothing"
on -c 'import transformers.trainer, importlib; importlib.reload(transformers.trainer); print("again")'
is "$out" "changes transformers.trainer Trainer
again" "once"
printf 'def install(module):\n    raise KeyError("no hook")\n' >fake/accel_slurm/trainer.py
on -c 'import transformers.trainer; print("runs", transformers.trainer.Trainer.__name__)'
is "$out" "accel: warning: transformers.trainer is left as it is: KeyError: 'no hook'
runs Trainer" "a failure of accel costs a line"
on -c 'import sys; sys.stderr.close(); import transformers.trainer; print("runs")'
is "$out" runs "and not even that where stderr is closed"
echo 'raise RuntimeError("broken")' >fake/transformers/trainer.py
on -c 'import transformers.trainer'
like "$out" '^RuntimeError: broken$' "an error of the module itself is the program's"
on -c 'import transformers.none'
like "$out" "No module named 'transformers.none'" "and so is a module that is not there"
echo 'class Trainer: pass' >fake/transformers/trainer.py
rm -r fake/accel_slurm
mkdir -p share/python share/python-site && cp "$site/sitecustomize.py" share/python-site/ &&
    cp -r "$ACCEL_SRC/python/accel_slurm" share/python/
site=$tap_tmp/share/python-site
on -c 'import transformers.trainer, accel_slurm; print(accel_slurm.__file__)'
like "$out" "^$tap_tmp/share/python/accel_slurm/__init__.py" \
    "accel_slurm is found beside it where no module has put it on the path"
like "$out" "^accel: warning: this transformers has no Trainer.train: it is left as it is" \
    "a transformers without a hook costs a line"
# ---- a transformers that lacks a hook: stand-ins again
if [ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] && ! built_with_sanitizer; then
    { mkdir there && ln -s "$ACCEL_BUILD/.libs" there/lib; } || bail_out "no directory"
    old() { # DIRECTORY WAY [MISSING]...: its exit code in $rc, both streams in $out
        out=$(ACCEL_ROOT=$tap_tmp/there PYTHONPATH=$ACCEL_SRC/python timeout "$HANG_S" python3 \
            "$ACCEL_SRC/tests/data/python/old_trainer.py" "$@" 2>&1)
        rc=$?
    }
    for way in installed hand; do
        old $way $way
        is $rc 85 "$way: a Trainer with all of them stops" || diag "$out"
        unlike "$out" 'its own handler|ended at|warning' "$way: its own handler is gone"
        ACCEL_RESUME=auto old $way $way
        like "$out" 'resumes from checkpoint-3' "$way: and resumes"
        is "$rc $(printf '%s\n' "$out" | tail -n 1)" "0 ended at step 6" "$way: and ends"
        old few$way $way _evaluate _load_rng_state _run_epoch
        is $rc 85 "$way: without three of them it stops, too" || diag "$out"
        old older$way $way eval_strategy
        is $rc 85 "$way: so it does where args.eval_strategy has its older name" || diag "$out"
        old few$way $way _evaluate _load_rng_state _run_epoch
        for hook in _evaluate _load_rng_state _run_epoch; do
            like "$out" "^accel: warning: this transformers has no Trainer.$hook: [a-z]" "$way: one line for $hook"
        done
    done
    old none installed _save_checkpoint
    like "$out" 'warning: this transformers has no Trainer._save_checkpoint: the Trainer is left as it is' \
        "without _save_checkpoint it is left alone"
    like "$out" 'its own handler' "with its own handler"
    old none hand _save_checkpoint
    like "$out" 'Error: accel_slurm.trainer: this transformers has no Trainer._save_checkpoint' \
        "which accel_slurm.trainer refuses"
    like "$out" '^  cure: ' "with a cure"
    out=$(ACCEL_ROOT=/nowhere PYTHONPATH=$ACCEL_SRC/python timeout "$HANG_S" python3 \
        "$ACCEL_SRC/tests/data/python/old_trainer.py" lost installed 2>&1)
    like "$out" 'warning: the Trainer is left as it is: libacceljob.so cannot be loaded' \
        "without the library the script runs as it is"
else
    skip 23 "libacceljob is not built, or with sanitizers"
fi
done_testing
