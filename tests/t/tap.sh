# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# TAP from POSIX sh. A test reads it first:   . "$(dirname "$0")/tap.sh"
# It gives ACCEL_SRC, ACCEL_BUILD (absolute), the verbs below, tap_tmpdir and at_exit.
# It never stops at a failed check: a test runs to its end and done_testing says how it went.

[ -n "${ACCEL_SRC:-}" ] || ACCEL_SRC=$(cd "$(dirname "$0")/../.." && pwd)
[ -n "${ACCEL_BUILD:-}" ] || ACCEL_BUILD=$ACCEL_SRC
export ACCEL_SRC ACCEL_BUILD
# What the developer has set for himself is not what is tested.
XDG_CONFIG_HOME=/nonexistent HF_HOME=/nonexistent
export XDG_CONFIG_HOME HF_HOME
# Nor is the make that runs the test: one within it would take its options and speak of it.
unset MAKEFLAGS MFLAGS MAKELEVEL
# Seconds after which whatever a test waits for hangs. No more is meant: how fast a machine
# is, and what else runs on it, decides no check.
HANG_S=600
export HANG_S

tap_run=0
tap_failed=0
tap_planned=
tap_cleanup=

# The exit status of the last check, 0 or 1, is its return value too.
_tap_result() { # STATUS DESCRIPTION
    tap_run=$((tap_run + 1))
    if [ "$1" -eq 0 ]; then
        printf 'ok %d - %s\n' "$tap_run" "$2"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    printf 'not ok %d - %s\n' "$tap_run" "$2"
    return 1
}

plan() { # N: number of checks, if known beforehand
    tap_planned=$1
    printf '1..%d\n' "$1"
}

skip_all() { # REASON: the whole test is skipped
    printf '1..0 # SKIP %s\n' "$1"
    exit 0
}

skip() { # N REASON: N checks that cannot run here
    tap_left=$1
    while [ "$tap_left" -gt 0 ]; do
        tap_run=$((tap_run + 1))
        printf 'ok %d # SKIP %s\n' "$tap_run" "$2"
        tap_left=$((tap_left - 1))
    done
}

diag() { # TEXT: shown to the reader, not counted
    printf '%s\n' "$*" | sed 's/^/# /'
}

ok() { # STATUS DESCRIPTION: 0 passes, as in  cmd; ok $? "cmd works"
    _tap_result "$1" "$2"
}

is() { # GOT WANT DESCRIPTION
    [ "$1" = "$2" ] && { _tap_result 0 "$3"; return; }
    _tap_result 1 "$3"
    diag "got  '$1'"
    diag "want '$2'"
    return 1
}

isnt() { # GOT UNWANTED DESCRIPTION
    [ "$1" != "$2" ] && { _tap_result 0 "$3"; return; }
    _tap_result 1 "$3"
    diag "got '$1', which it must not be"
    return 1
}

like() { # GOT ERE DESCRIPTION: some line of GOT matches
    printf '%s\n' "$1" | grep -E -q -e "$2" && { _tap_result 0 "$3"; return; }
    _tap_result 1 "$3"
    diag "got  '$1'"
    diag "want a line like /$2/"
    return 1
}

unlike() { # GOT ERE DESCRIPTION: no line of GOT matches
    printf '%s\n' "$1" | grep -E -q -e "$2" || { _tap_result 0 "$3"; return; }
    _tap_result 1 "$3"
    diag "got '$1'"
    diag "want no line like /$2/"
    return 1
}

contains() { # GOT TEXT DESCRIPTION: GOT contains TEXT as it stands
    case $1 in
    *"$2"*) _tap_result 0 "$3"; return ;;
    esac
    _tap_result 1 "$3"
    diag "got  '$1'"
    diag "want '$2' in it"
    return 1
}

# Runs CMD in a subshell; its output is shown only when the check fails.
passes() { # DESCRIPTION CMD [ARG]...: CMD exits 0
    tap_what=$1
    shift
    tap_out=$( ("$@") 2>&1) && { _tap_result 0 "$tap_what"; return; }
    tap_rc=$?
    _tap_result 1 "$tap_what"
    diag "'$*' exited $tap_rc: $tap_out"
    return 1
}

fails() { # DESCRIPTION CMD [ARG]...: CMD exits other than 0, not killed by a signal
    tap_what=$1
    shift
    tap_out=$( ("$@") 2>&1)
    tap_rc=$?
    [ "$tap_rc" -ne 0 ] && [ "$tap_rc" -lt 128 ] && { _tap_result 0 "$tap_what"; return; }
    _tap_result 1 "$tap_what"
    diag "'$*' exited $tap_rc, want a failure: $tap_out"
    return 1
}

# Was the build made with --enable-sanitizer? (The fuzz targets have a line of their own.)
built_with_sanitizer() {
    grep -q -e '^ACCEL_CFLAGS = .*-fsanitize=' "$ACCEL_BUILD/Makefile" 2>/dev/null
}

bail_out() { # REASON: nothing that follows makes sense
    printf 'Bail out! %s\n' "$1"
    exit 1
}

# Commands to run when the test ends, however it ends; the last one given runs first.
at_exit() { # COMMAND-STRING
    tap_cleanup="$1
$tap_cleanup"
}

# When it began, in ticks: number and begin name a process, a number alone may come again, and on a
# busy machine does within the minute.
_tap_begin() { # PID
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

_tap_end() { # BEGIN SIGNAL PID TARGET
    [ -z "$1" ] || [ "$(_tap_begin "$3")" != "$1" ] || env kill -s "$2" -- "$4" 2>/dev/null
}

kill_at_exit() { # PID [SIGNAL]: if it still runs then
    at_exit "_tap_end '$(_tap_begin "$1")' ${2:-TERM} $1 $1"
}

kill_group_at_exit() { # PID [SIGNAL]: that process leads a group
    at_exit "_tap_end '$(_tap_begin "$1")' ${2:-TERM} $1 -$1"
}

_tap_leave() {
    tap_status=$?
    trap - EXIT
    eval "$tap_cleanup"
    exit "$tap_status"
}
trap _tap_leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Makes an own directory, named in $tap_tmp and removed at the end.
tap_tmpdir() {
    tap_tmp=$(mktemp -d "${TMPDIR:-/tmp}/accel-test.XXXXXX") ||
        bail_out "cannot make a temporary directory in ${TMPDIR:-/tmp}"
    at_exit "rm -rf '$tap_tmp'"
}

done_testing() { # prints the plan if plan was not called; the test's exit status
    [ -n "$tap_planned" ] || printf '1..%d\n' "$tap_run"
    if [ -n "$tap_planned" ] && [ "$tap_planned" -ne "$tap_run" ]; then
        diag "planned $tap_planned checks but ran $tap_run"
        exit 1
    fi
    [ "$tap_failed" -eq 0 ] || exit 1
    exit 0
}
