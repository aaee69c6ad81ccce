#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Names in texts: every command, option, config key, function, variable, file, make target and
# message code that a message page (accel explain), README.md or a page of doc/ names exists.
# Commands and options are looked for in `code` and in indented lines, the rest everywhere.
. "$(dirname "$0")/tap.sh"

accel=$ACCEL_BUILD/accel
[ -x "$accel" ] || skip_all "accel is not built"
tap_tmpdir
LC_ALL=C
export LC_ALL
cd "$ACCEL_SRC" || exit 1

# ---- what is said: a line "PAGE<TAB>text" for each paragraph, indented lines in backticks ----
paragraphs() { # FILE...
    awk '
        function flush() { if (text != "") print page "\t" text; text = "" }
        FNR == 1 { flush(); page = FILENAME }
        /^ *$/ { flush(); next }
        /^    / { flush(); sub(/^ +/, ""); print page "\t`" $0 "`"; next }
        { sub(/^ +/, ""); text = text " " $0 }
        /^ *\|/ { flush() }
        END { flush() }' "$@"
}
# The strings of a table of messages, those side by side as one.
messages() {
    cat runtime/common/messages/*.def | tr '\n' ' ' |
        sed -e 's/" *"//g' -e 's/\\"/"/g' -e 's/MESSAGE(/\n&/g' | sed -n 's/^MESSAGE(\([0-9]*\)/A\1	&/p'
}
{
    paragraphs README.md doc/*.md
    messages
} >"$tap_tmp/said"
[ "$(cut -f1 "$tap_tmp/said" | sort -u | grep -c '^A0')" -gt 100 ]
ok $? "the messages are read"
# Pieces of code, without comments; of a message also a command in parentheses.
{
    awk -F'\t' '{
        n = split($2, part, "`")
        for (i = 2; i <= n; i += 2) { sub(/ # .*/, "", part[i]); print $1 "\t" part[i] }
    }' "$tap_tmp/said"
    grep '^A0' "$tap_tmp/said" | grep -o -E '^A[0-9]+|\(accel [a-z][^()]*' |
        awk '/^A[0-9]/ { page = $0; next } { print page "\t" substr($0, 2) }'
} >"$tap_tmp/code"

# PAGE<TAB>MATCH for each match of an ERE.
matches() { # ERE [FILE]
    awk -F'\t' -v ere="$1" '{
        rest = $2
        while (match(rest, ere)) {
            print $1 "\t" substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
        }
    }' "${2:-$tap_tmp/said}"
}

# Each line PAGE<TAB>NAME of $claims has its NAME in the file SET.
claims=$tap_tmp/claims
known=$tap_tmp/known
all_in() { # SET DESCRIPTION
    if [ ! -s "$1" ] || [ ! -s "$claims" ]; then
        ok 1 "$2: nothing to compare"
        return
    fi
    lost=$(awk -F'\t' 'NR == FNR { known[$1] = 1; next } !($2 in known) { print $1 ": " $2 }' \
        "$1" "$claims" | sort -u)
    is "$lost" "" "$2 ($(sort -u "$claims" | wc -l | tr -d ' ') looked up)"
}

# ---- commands and their verbs ----
"$accel" --help | sed -n 's/^  accel \([a-z0-9-]*\) .*/\1/p' >"$tap_tmp/commands"
while read -r command; do
    "$accel" "$command" --help >"$tap_tmp/help.$command" 2>&1
    echo "$command"
    # A verb follows the options in a line of the usage: "accel ckpt [OPTION...] verify DIR".
    sed -n '/^Usage:/,/^[A-Z][a-z]*[ .]/p' "$tap_tmp/help.$command" | tr '\n' ' ' |
        grep -o -E '\] +[a-z0-9]+( |$)' | tr -d '] ' | sed "s/^/$command /"
done <"$tap_tmp/commands" >"$tap_tmp/verbs"
grep -q '^ckpt verify$' "$tap_tmp/verbs"
ok $? "accel --help lists the commands, their help the verbs"
matches '(^|[ ;(])accel +[a-z][a-z0-9-]*( +[a-z][a-z0-9]*)?' "$tap_tmp/code" |
    awk -F'\t' 'NR == FNR { split($0, word, " "); if (word[2]) verbs[word[1]] = 1; next } {
        sub(/^[ ;(]+/, "", $2)
        n = split($2, word, / +/)
        print $1 "\t" word[2] (n > 2 && word[2] in verbs ? " " word[3] : "")
    }' "$tap_tmp/verbs" - >"$claims"
all_in "$tap_tmp/verbs" "commands of accel"

# ---- options ----
options_of() { # any text: its options, a line each
    grep -o -E -e '--[a-zA-Z][a-zA-Z0-9_-]+' | sed 's/^--without-/--with-/' | sort -u
}
"$accel" check --keys | awk 'NR > 1 { print $1 }' >"$tap_tmp/keys"
# accel launch takes a flag for every key, and those of accelerate.
{
    sed 's/.*\.//; s/^/--/' "$tap_tmp/keys"
    sed -n 's/^    { "\([a-z_]*\)", [A-Z_]*, .*/--\1/p' cli/launch/launch_flags.c
} >>"$tap_tmp/help.launch"
# An option of `accel CMD` is one of that command's; what follows a program's name is not.
awk -F'\t' '{
    n = split($2, word, /[ |]+/)
    for (i = 1; i < n && word[i] != "accel"; i++) continue
    for (j = i + 2; j <= n && word[j] != "&&" && word[j] !~ /^(\.\/|PROGRAM|accel$)/; j++)
        if (word[i + 1] ~ /^[a-z]/ && word[j] ~ /^--[a-z]/) {
            sub(/[=,;:).].*/, "", word[j])
            print $1 "\t" word[i + 1] " " word[j]
        }
}' "$tap_tmp/code" >"$claims"
while read -r command; do
    options_of <"$tap_tmp/help.$command" | sed "s/^/$command /"
done <"$tap_tmp/commands" >"$known"
all_in "$known" "options of accel's commands"
{
    cat "$tap_tmp"/help.* | options_of
    "$accel" --help | options_of
    "$ACCEL_BUILD/examples/train" --help | options_of
    ./configure --help | options_of
    cat scripts/quickstart scripts/test scripts/install-deps scripts/accel-cluster \
        tests/gpu/trial.sh | options_of
    sed -n 's/^#define OPTION_[A-Z_]* *"\([a-z-]*\)".*/--\1/p' srun_plugin/plugin.h
    # Of Slurm, env, pkg-config, Accelerate.
    printf -- '--%s\n' cpu-bind cpus-per-task default-signal dependency disable-status exclusive \
        export gpu-bind gpus gpus-per-node gpus-per-task job-name kill-on-bad-exit me mpi nodes \
        no-requeue ntasks ntasks-per-node open-mode output overcommit pty requeue signal version \
        wrap cflags libs
} >"$known"
matches '(^|[^-a-zA-Z0-9])--[a-zA-Z][a-zA-Z0-9_-]+' |
    sed 's/	[^-]*--/	--/; s/	--without-/	--with-/' >"$claims"
all_in "$known" "options"
printf 'ClusterName=none\nSlurmctldHost=localhost\n' >"$tap_tmp/slurm.conf"
for program in srun sbatch squeue; do
    SLURM_CONF=$tap_tmp/slurm.conf "$program" --help 2>/dev/null
done | options_of >"$tap_tmp/slurm"
if [ -s "$tap_tmp/slurm" ]; then
    awk -F'\t' '$2 ~ /^(srun|sbatch|squeue) / {
        n = split($2, word, / +/)
        for (i = 2; i <= n && word[i] ~ /^-/; i++) {
            sub(/=.*/, "", word[i])
            if (word[i] ~ /^--[a-z]/ && word[i] !~ /^--accel-/) print $1 "\t" word[i]
        }
    }' "$tap_tmp/code" >"$claims"
all_in "$tap_tmp/slurm" "options of srun and sbatch"
else
    skip 1 "no Slurm"
fi

# ---- config keys ----
{
    cat "$tap_tmp/keys"
    sed 's/.*\.//' "$tap_tmp/keys"
    # Their sections; accel.lock is the site file's.
    sed -n 's/\.[^.]*$//p' "$tap_tmp/keys"
    echo accel.lock
    # "parallelism_config_cp_*"
    sed -n 's/.*\.\(parallelism_config_[a-z]*\)_.*/\1/p' "$tap_tmp/keys"
} >"$known"
matches '(^|[^a-zA-Z0-9_./-])accel\.[a-z_]+(\.[a-z0-9_]+)*' | sed 's/	[^a]*accel/	accel/' |
    grep -v -E '	accel\.(h|map|conf|pc|lua|tcl|json|schema\.json)$' >"$claims"
all_in "$known" "keys of accel"
matches '(^|[^a-zA-Z0-9_./-])(fsdp|fp8|parallelism_config|deepspeed|megatron_lm|dynamo|mpirun|zero3|zero_stage)[a-z0-9_]*_[*a-z0-9]+' |
    sed 's/	[^a-z]*/	/; s/_[*]$//' >"$claims"
all_in "$known" "keys of Accelerate"

# ---- functions, types, constants, variables ----
headers="runtime/accel*.h checkpoint/accel_ckpt.h runtime/weights/safetensors/accel_safetensors.h"
{
    # shellcheck disable=SC2086
    cat $headers | grep -o -E '\baccel_[a-z0-9_]+'
    printf '%s\n' accel_spank accel_spank_config accel_cuda accel_ckpt accel_safetensors # files
    # What a checkpoint has inside.
    grep -h -o -E '"accel_[a-z_]+' checkpoint/hdf5/ckpt_h5.h checkpoint/hdf5/h5_layout.c runtime/state/state.c | tr -d '"'
} >"$known"
matches '(^|[^a-zA-Z0-9_./-])accel_[a-z0-9_]*[a-z0-9]' | sed 's/	[^a]*accel/	accel/' >"$claims"
all_in "$known" "functions and types of the library"
{
    # A variable for each key, and those that the sources know.
    sed 's/^accel\.//; s/^[a-z0-9_]*_config\.//; s/\./_/g' "$tap_tmp/keys" | tr '[:lower:]' '[:upper:]' | sed 's/^/ACCEL_/'
    find runtime cli srun_plugin checkpoint scripts modulefiles tests/bench tests/local.mk tests/t/60*.t -type f \
        ! -name '*.def' -exec grep -I -h -o -E '\bACCEL_[A-Z0-9_]+' {} +
    echo ACCEL_KEY
} >"$known"
matches '(^|[^a-zA-Z0-9_])ACCEL_[A-Z0-9_]*[A-Z0-9]' | sed 's/	[^A]*ACCEL/	ACCEL/' >"$claims"
all_in "$known" "constants and variables of accel"

# Fields, keys, columns: names with an underline, of those that the sources have too. The first
# column of a table for users of Accelerate has names of theirs, and so has its last list.
{
    sed 's/.*\.//' "$tap_tmp/keys"
    find runtime cli srun_plugin checkpoint scripts -type f ! -name '*.def' \
        -exec grep -I -h -o -E '[a-z][a-z0-9]*(_[a-z0-9]+)+' {} + | sort -u
    printf '%s\n' parallelism_config_cp parallelism_config_sp # with an asterisk
    printf '%s\n' save_pretrained byte_fallback unk_token # of Hugging Face
} >"$known"
grep -v -E '^doc/(architecture|checkpoint-format|glossary|python)\.md	' "$tap_tmp/said" |
    sed -n -e '/^doc\/for-accelerate-users.md/{s/	 *|[^|]*|/	|/p' -e d -e '}' -e p |
    matches '(^|[^a-zA-Z0-9_./-])[a-z][a-z0-9]*(_[a-z0-9]+)+' - | sed 's/	[^a-z]*/	/' |
    grep -v -E '	accel_|_[0-9]+$' >"$claims"
all_in "$known" "names with an underline"
# The first table of that page is of keys.
sed -n '/^## Configuration keys/,/^## Commands/s/^| *\([^|]*\)|.*/\1/p' doc/for-accelerate-users.md |
    sed 's/^/keys	/' | matches '`[a-z][a-z0-9]*(_[a-z0-9]+)+' - | tr -d '`' >"$claims"
{
    sed 's/.*\.//' "$tap_tmp/keys"
    sed -n 's/\.[^.]*$//p' "$tap_tmp/keys"
} >"$known"
all_in "$known" "keys in the table for users of Accelerate"

# ---- files of the source ----
# Paths below a folder of the source ("tests/t/2150" is short for the one file), and names that
# only a source file, a test or a page has.
matches '(^|[^a-zA-Z0-9_./=:$-])(runtime|checkpoint|srun_plugin|cli|scripts|tests|doc|examples|schema|modulefiles)/[a-zA-Z0-9_./*-]*' |
    sed 's/	[^a-z]*/	/; s/[.]*$//' | sort -u >"$claims"
lost=$(while IFS='	' read -r page name; do
    # A page of doc/ may name its neighbours' folders from where it is.
    set -- "$name"* "runtime/$name"*
    for file; do [ ! -e "$file" ] || continue 2; done
    [ ! -e "$ACCEL_BUILD/$name" ] || continue
    echo "$page: $name"
done <"$claims")
is "$lost" "" "files of the source ($(wc -l <"$claims" | tr -d ' ') looked up)"
{
    find . -name .git -prune -o -type f -print | sed 's|.*/||'
    printf '%s\n' llm.c job.sh # a program of others, a script that a page writes
} >"$known"
matches '(^|[^a-zA-Z0-9_./*-])[a-zA-Z0-9_-]+\.(c|cu|h|t|md|sh)([^a-zA-Z0-9_]|$)' |
    sed 's/	[^a-zA-Z0-9_]*/	/; s/[^a-zA-Z0-9_]$//' >"$claims"
all_in "$known" "names of source files, tests and pages"

# ---- make targets, message codes, man pages ----
{
    find . -name local.mk -exec sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' {} +
    printf '%s\n' all check clean dist distcheck install
} >"$known"
matches '(^|[ ;&])make( -[a-zA-Z0-9]+)* +[a-z][a-z-]+' "$tap_tmp/code" | sed 's/	.* /	/' >"$claims"
all_in "$known" "targets of make"
"$accel" explain | grep -o -E '^A0[0-9]+' >"$known"
matches 'A0[0-9][0-9][0-9]' >"$claims"
all_in "$known" "codes of messages"
printf '%s\n' 'accel(1)' 'libaccel(3)' 'accel-config(5)' 'accel(7)' >"$known"
matches '(accel|libaccel|accel-[a-z]+)\([1-8]\)' >"$claims"
all_in "$known" "manual pages"

# ---- the page of A0170 has the values that libaccel supports, and no others ----
page=$("$accel" explain A0170 | tr '\n' ' ')
values_of() { # KEY: those of its row in the schema that libaccel supports, the first "a|b" there
    grep -h -A 4 "\"$1\"," runtime/config/keys_*.def | grep -o '"[A-Za-z0-9_]*|[A-Za-z0-9_|]*"' |
        head -n 1 | tr -d '"' | tr '|' '\n'
}
for key in distributed_type mixed_precision fsdp_sharding_strategy zero_stage; do
    values_of $key | sort >"$claims"
    [ -s "$claims" ]
    ok $? "the schema has the values of $key"
    is "$(while read -r value; do
        printf '%s\n' "$page" | grep -q -w -e "$value" || echo "$value"
    done <"$claims")" "" "the page of A0170 has all that libaccel supports of $key"
done
for key in distributed_type fsdp_sharding_strategy; do values_of $key; done >"$known"
printf 'A0170\t%s\n' "$page" | sed 's/ACCEL_[A-Z]*//; s/MESSAGE//' | matches '[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]' - >"$claims"
all_in "$known" "values that the page of A0170 names"
done_testing
