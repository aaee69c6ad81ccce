# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests that preempt Python programs: runs of tests/preempt/run_one.py, as checks. Read after
# lib.sh and peers.sh. The caller sets $state, the directory of results.

# The programs find accel where it was built. Skips the whole test where they cannot run.
need_preempted() {
    need_plugin
    [ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
    tap_tmpdir
    need_peers "torch, transformers, accelerate"
    {
        mkdir -p root/share/accel && ln -s "$ACCEL_SRC/python" root/share/accel/python &&
            ln -s "$ACCEL_SRC/python/site" root/share/accel/python-site
    } || bail_out "no directory"
    # What ranks report to srun: two clusters of one name count their jobs alike.
    XDG_STATE_HOME=$tap_tmp/state-home
    export XDG_STATE_HOME
}

# A run, unless it has passed before. Its output stays in $state/NAME.
judged() { # NAME KEY=VALUE...
    judged_name=$1
    shift
    [ ! -e "$state/$judged_name.passed" ] || {
        ok 0 "$judged_name (before)"
        return
    }
    "$python" "$ACCEL_SRC/tests/preempt/run_one.py" "$state" "name=$judged_name" "$@" \
        >"$judged_name.wrong" 2>&1 && [ ! -s "$judged_name.wrong" ]
    ok $? "$judged_name" || {
        diag "$(cat "$judged_name.wrong")"
        diag "its output, in $state/$judged_name/out:"
        diag "$(grep -v -e '^rank [0-9]* step' -e '^\[' -e '^{' "$state/$judged_name/out")"
        return 1
    }
    : >"$state/$judged_name.passed"
}

# The run that nobody disturbs, once for each program. One that fails is not tried again.
need_undisturbed() { # PROGRAM [KEY=VALUE]...
    [ ! -e "$state/undisturbed-$1.json" ] || return 0
    [ ! -e "undisturbed-$1.wrong" ] || return 1
    judged_program=$1
    shift
    judged "undisturbed-$judged_program" "program=$judged_program" form=bare grace=grace \
        moment=none "$@"
}
