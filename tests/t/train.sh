# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# For tests that run the reference trainer: a config per case, text to train on, and the
# comparison of JSONL logs. Read after lib.sh; needs tap_tmpdir to have been called.

TRAIN=$ACCEL_BUILD/examples/train

# Real text of 57 kB. Bounds on losses hold for one text: a page that is edited often would move
# them.
train_text() { # FILE
    for _ in 1 2 3 4 5; do
        cat "$ACCEL_SRC/LICENSE"
    done >"$1"
}

# Pairs of sentences of one to three words; the label is the topic that the second one names.
train_pairs() { # NUMBER FILE VOCABULARY
    awk -v number="$1" '
        function rnd(n) { x = (x * 16807) % 2147483647; return int(x / 2147483647 * n) }
        function words(first, n, s) {
            for (s = first; n > 1; n--)
                s = s " word" rnd(6)
            return s
        }
        BEGIN { x = 7; for (i = 0; i < number; i++) { t = rnd(3)
            print t "\t" words("word" rnd(6), 1 + rnd(3)) "\t" words("topic" t, 1 + rnd(3)) } }
        ' >"$2"
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' topic0 topic1 topic2 word0 word1 word2 \
        word3 word4 word5 >"$3"
}

# For trainings of one process without Slurm: a directory of the test's own with text.txt in it.
train_alone() {
    [ -x "$TRAIN" ] || skip_all "examples/train is not built"
    tap_tmpdir
    cd "$tap_tmp" || bail_out "no directory"
    train_text text.txt
    unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED
}

# train_config FILE STRATEGY PRECISION PROCESSES MACHINES [LINE...]: extra lines go below
# "accel:".
train_config() {
    cfg_file=$1 cfg_strategy=$2 cfg_precision=$3 cfg_n=$4 cfg_machines=$5
    shift 5
    cat >"$cfg_file" <<END
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_sharding_strategy: $cfg_strategy
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: $cfg_precision
num_machines: $cfg_machines
num_processes: $cfg_n
use_cpu: true
END
    [ $# -eq 0 ] && return 0
    echo "accel:" >>"$cfg_file"
    printf '  %s\n' "$@" >>"$cfg_file"
}

# "STEP LOSS" per record, in file order; the loss as written (17 digits tell the bits).
losses() { # FILE
    sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"
}

# A reader of the whole would run after a log that grows as fast: its end is enough.
last_step() { # FILE: number of the last complete record, 0 if none
    tail -c 65536 "$1" 2>/dev/null | losses - | awk 'END { print $1 + 0 }'
}

_has_step() { # FILE N
    [ "$(last_step "$1")" -ge "$2" ]
}

# Waits until FILE holds step N; returns 1 when that does not happen.
wait_for_step() { # FILE N
    wait_until _has_step "$1" "$2"
}

# Every step from 1 to N exactly once, in order.
each_step_once() { # FILE N
    losses "$1" | awk -v n="$2" '$1 != NR { bad = 1 } END { exit !(NR == n && !bad) }'
}

same_bits() { # FILE FILE
    losses "$1" >"$tap_tmp/bits.a"
    losses "$2" >"$tap_tmp/bits.b"
    [ -s "$tap_tmp/bits.a" ] && cmp -s "$tap_tmp/bits.a" "$tap_tmp/bits.b"
}

# Largest relative difference of two logs over their common steps; "none" if there are none.
worst_difference() { # FILE FILE
    losses "$1" >"$tap_tmp/diff.a"
    losses "$2" >"$tap_tmp/diff.b"
    awk 'NR == FNR { a[$1] = $2; next }
         $1 in a { d = $2 - a[$1]; if (d < 0) d = -d; if (a[$1] != 0) d /= a[$1]
                   if (d > worst) worst = d; n++ }
         END { if (n) printf "%.3g\n", worst; else print "none" }' \
        "$tap_tmp/diff.a" "$tap_tmp/diff.b"
}

# Both logs hold steps 1..N and differ by at most REL.
close_losses() { # FILE FILE N REL DESCRIPTION
    cl_worst=$(worst_difference "$1" "$2")
    if each_step_once "$1" "$3" && each_step_once "$2" "$3" &&
        awk -v w="$cl_worst" -v r="$4" 'BEGIN { exit !(w != "none" && w + 0 <= r + 0) }'; then
        ok 0 "$5"
        diag "largest relative difference over $3 steps: $cl_worst"
        return 0
    fi
    ok 1 "$5"
    diag "largest relative difference $cl_worst (allowed $4); steps $(last_step "$1")," \
        "$(last_step "$2"), want $3"
}
