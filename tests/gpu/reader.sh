# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For the parts of a trial: runs tests and benchmarks and marks, in the log, the lines that
# belong in the result: "= " a figure, "! " a failure. Reads TAP itself, because a machine with a
# GPU need not have Perl. A part ends with part_done.

part_passed=0 part_failed=0

figure() { # TEXT
    printf '= %s\n' "$*"
}

# Ends the part as skipped when what it needs is missing.
skip_part() { # REASON
    figure "skipped: $1"
    exit 77
}

need_gpu() {
    [ -z "$TRIAL_NO_GPU" ] || skip_part "$TRIAL_NO_GPU"
}

# Output of a command, then its status in a line of its own.
with_status() { # COMMAND [ARG]...
    "$@" 2>&1
    echo "trial: status $?"
}

# Line by line, so that nothing is lost when time is up. A diagnosis behind a failure belongs to
# it; of the others those with a figure are shown.
read_tap() { # NAME; status 0: passed, 77: skipped, 1: failed
    good=0 bad=0 skipped=0 planned='' reason='' behind=0 status=none device=''
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
        'ok '*'# SKIP'*) skipped=$((skipped + 1)) reason=${line#*# SKIP} behind=0 ;;
        'ok '*) good=$((good + 1)) behind=0 ;;
        'not ok '* | 'Bail out!'*)
            bad=$((bad + 1)) behind=3
            printf '! %s: %s\n' "$1" "$line"
            ;;
        '1..'*) planned=${line#1..} ;;
        '# sm_'*)
            [ "$line" = "$device" ] || printf '= %s\n' "${line#??}"
            device=$line
            ;;
        '# largest '* | '# '*': planned '*) printf '= %s\n' "${line#??}" ;;
        '# '*)
            [ $behind -eq 0 ] || printf '!   %s\n' "${line#??}"
            behind=$((behind - (behind > 0)))
            ;;
        'trial: status '*) status=${line#trial: status } ;;
        esac
    done
    case $planned in
    '0 # SKIP '*)
        echo "= $1: skipped: ${planned#0 # SKIP }"
        return 77
        ;;
    esac
    echo "= $1: $good passed, $bad failed, $skipped skipped${reason:+ (the last:$reason)}"
    [ "$bad" -eq 0 ] || return 1
    if [ "$status" != 0 ] || [ "$planned" != $((good + skipped)) ]; then
        echo "! $1: ended with status $status behind $((good + skipped)) of ${planned:-unknown} checks"
        return 1
    fi
    [ "$good" -gt 0 ] || return 77
}

tap() { # NAME COMMAND [ARG]...: a program that writes TAP
    tap_name=$1
    shift
    # cuBLASLt's errors, and its calls, which have shapes and types (1 and 16). Calls take time,
    # so they are not logged beside figures.
    with_status env CUBLASLT_LOG_MASK=17 "$@" | read_tap "$tap_name"
    case $? in
    0) part_passed=$((part_passed + 1)) ;;
    77) ;;
    *) part_failed=$((part_failed + 1)) ;;
    esac
}

read_figures() { # NAME
    status=none
    while IFS= read -r line; do
        case $line in
        'trial: status '*) status=${line#trial: status } ;;
        *) printf '= %s\n' "$line" ;;
        esac
    done
    [ "$status" = 0 ] || { printf '! %s: ended with status %s\n' "$1" "$status"; return 1; }
}

figures() { # NAME COMMAND [ARG]...: each line of its output is a figure
    figures_name=$1
    shift
    if with_status env CUBLASLT_LOG_MASK=1 "$@" | read_figures "$figures_name"; then
        part_passed=$((part_passed + 1))
    else
        part_failed=$((part_failed + 1))
    fi
}

part_done() {
    [ $part_failed -eq 0 ] || exit 1
    [ $part_passed -gt 0 ] || exit 77
    exit 0
}
