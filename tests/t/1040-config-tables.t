#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Help, completion, manual pages and parser say the same: every command, every option,
# every config key, every exit code. The pages are clean, the script is good bash.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"

"$accel" --help >help
"$accel" man 1 >accel.1
"$accel" man 3 >libaccel.3
"$accel" man 5 >accel-config.5
"$accel" man 7 >accel.7
"$accel" completion bash >script
"$ACCEL_BUILD/cli/man/tables" >tables
commands=$(sed -n 's/^  accel \([a-z0-9-]*\) .*/\1/p' help | sort -u)
[ "$(echo "$commands" | wc -l)" -ge 7 ]
ok $? "accel --help lists the commands"
is "$("$accel" | sed -n 's/^  accel \([a-z0-9-]*\) .*/\1/p' | sort)" "$commands" \
    "accel alone lists the same"

# Plain text of man(7) markup: no fonts, no escapes.
plain() {
    sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' -e 's/\\&//g' -e 's/\\(aq/'"'"'/g' \
        -e 's/\\(ti/~/g' -e 's/\\e/\\/g' "$1"
}
plain accel.1 >man1
plain accel-config.5 >man5
plain libaccel.3 >man3
plain accel.7 >man7
# Section "accel CMD" of accel(1).
man_of() { # CMD
    awk -v head=".SS \"accel $1:" '/^\.S[SH]/ { on = index($0, head) == 1 } on' man1
}
is "$(sed -n 's/^\.SS "accel \([a-z0-9-]*\):.*/\1/p' man1 | sort)" "$commands" \
    "accel(1) has a section for each command"
is "$(sed -n 's/^\.SS "\(accel [a-z0-9-]*\): \(.*\)"$/\1 \2/p' man1 | sort)" \
    "$(sed -n 's/^  \(accel [a-z0-9-]*\) */\1 /p' help | sort)" \
    "with its whole summary in the heading"

# What bash offers for WORDS, the last of them being typed; sorted, one per line.
offer() { # WORD...
    bash -c '. ./script
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _accel
        printf "%s\n" "${COMPREPLY[@]}"' bash "$@" 2>&1 | sort -u
}
has_bash=
command -v bash >/dev/null 2>&1 && has_bash=yes
if [ $has_bash ]; then
    is "$(offer accel '' | grep -v '^-')" "$commands" "completion offers the commands"
else
    skip 1 "no bash"
fi

for command in $commands; do
    listed=$("$accel" "$command" --help | sed -n -E 's/^ {2,8}(-[a-zA-Z?], )? *(--[a-z][-a-z]*).*/\2/p' |
        sort -u)
    is "$(man_of "$command" | grep -A1 '^\.TP' | grep -o -E -e '--[a-z][-a-z]*' | sort -u)" \
        "$listed" "accel $command: the page has the options of the help"
    if [ $has_bash ]; then
        is "$(offer accel "$command" -)" "$listed" "accel $command: so has completion"
    else
        skip 1 "no bash"
    fi
    is "$(for option in $listed; do
        "$accel" "$command" "$option" </dev/null 2>&1 >/dev/null |
            grep -E 'unrecognized|ambiguous'
    done)" "" "accel $command: the parser takes each of them"
    for letter in $("$accel" "$command" --help |
        sed -n -E 's/^ {2,6}-([a-zA-Z?]), --.*/\1/p'); do
        unlike "$("$accel" "$command" "-$letter" </dev/null 2>&1 >/dev/null)" 'invalid option' \
            "accel $command: the parser takes -$letter"
    done
done

# ---- what completion offers after an option and for operands ----
functions=$(grep -o -E '\baccel_[a-z0-9_]+\(' -h "$ACCEL_SRC"/runtime/accel*.h | tr -d '(' | sort -u)
if [ $has_bash ]; then
    : >a.yaml
    mkdir adir
    is "$(offer accel check a)" "$(printf 'a.yaml\naccel-config.5\naccel.1\naccel.7\nadir' | sort)" \
        "check: files"
    is "$(offer accel launch --config a.y)" "a.yaml" "launch --config: files"
    is "$(offer accel launch -n '')" "" "launch -n: nothing to offer for a number"
    is "$(offer accel ckpt '' | grep -v / | tr '\n' ' ')" \
        "adir diff export import index ls merge prune repair show split verify " \
        "ckpt: verbs, directories"
    is "$(offer accel completion '')" "bash" "completion: bash"
    is "$(offer accel man '' | tr '\n' ' ')" "1 3 5 7 $(echo "$functions" | tr '\n' ' ')" \
        "man: the sections and the functions"
    is "$(offer accel schema '')" \
        "$("$accel" check --keys | sed 1d | cut -d' ' -f1 | sort -u)" \
        "schema: every key of the schema table"
    is "$(offer accel nothing '')" "" "an unknown command: nothing"
    is "$(offer accel explain A0)" \
        "$("$accel" explain | sed -n 's/^\(A[0-9]*\) .*/\1/p' | sort)" "explain: every code"
    is "$(offer accel explain --json A001 | head -n 1)" A0010 "also behind an option"
    is "$(offer accel explain A0010 A)" "" "but one is enough"
    is "$(offer accel plan --model gpt2-3)" gpt2-355M "plan --model: published models"
    is "$(offer accel plan --model "" | grep -c -E '^(gpt2-xl|llama-3-8b|bert-large-cased|adir)$')" 4 \
        "of every kind, and directories"
    is "$(for model in $(offer accel plan --model "" | grep -v -x -e adir); do
        "$accel" plan "$ACCEL_SRC/examples/single.yaml" --model "$model" --batch 1 --seq 8 2>&1 >/dev/null
    done)" "" "each of which plan knows"
    is "$(offer accel check --set distributed_t)" distributed_type= "--set: keys"
    # bash takes "=" for a word of its own.
    is "$(offer accel check --set distributed_type = MULTI_ | grep -c '^MULTI_')" 9 "--set KEY=: values"
    is "$(offer accel check --set distributed_type=FS)" FSDP "in one word, too"
    is "$(offer accel check --set distributed_type = | sort)" \
        "$("$accel" schema distributed_type | sed -n 's/^ *"\([A-Z_]*\)",*$/\1/p' | sort)" \
        "the values of the schema"
    is "$(offer accel check --set = distributed_type = FS)" FSDP "--set=KEY=, too"
    is "$(offer accel check --set accel.checkpoint.save=)" "$(printf 'false\ntrue')" "a switch"
    is "$(offer accel check --site = a.y)" a.yaml "--option=FILE"
    is "$(offer accel check --json a.y)" a.yaml "operands behind options"
    is "$(offer accel ckpt --json l)" ls "verbs behind options"
    is "$(offer accel check --set use_cpu=true a.y)" a.yaml "and behind an option's argument"
    is "$(offer accel --json ck)" ckpt "commands behind --json, those that take it"
    is "$(offer accel --json '' | while read -r c; do
        "$accel" "$c" --help | grep -q -e --json || echo "$c"
    done)" "" "and no others"
    is "$(offer accel launch --use_f)" "--use_fsdp" "launch: Accelerate's flags"
    is "$(offer accel launch --fsdp-v)" "--fsdp-version" "those of keys, with hyphens, too"
    is "$(offer accel launch --mixed_precision b)" bf16 "with their values"
    is "$(offer accel launch --mixed-precision = b)" bf16 "behind an equals sign, too"
    is "$(offer accel launch --config_file a.y)" a.yaml "or files"
    is "$(offer accel launch --use_fsdp ./tra)" "" "a flag without a value takes no word"
    is "$(offer accel launch --use_fsdp a.yaml --he)" "" \
        "behind the program nothing is an option of accel"
    is "$(offer accel launch prog a.y)" a.yaml "but files are files"
    is "$(for flag in $(offer accel launch --u) $(offer accel launch --m); do
        "$accel" launch "$flag" 1 true 2>&1 | grep -E 'unrecognized|no key'
    done)" "" "the parser takes each of them"
    passes "the script is good bash" bash -n script
else
    skip 36 "no bash"
fi
if command -v shellcheck >/dev/null 2>&1; then
    passes "shellcheck of the completion script" shellcheck -s bash script
else
    skip 1 "no shellcheck"
fi

# ---- config keys and exit codes ----
is "$(awk '/^\.SH/ { on = /KEYS/ } on && /^\.SS/ { s = $0; sub(/^\.SS "/, "", s)
        sub(/"$/, "", s); s = s == "Top level" ? "" : s "." }
    on && tag { print s $0; tag = 0 } on && /^\.TP/ { tag = 1 }' man5 | sort)" \
    "$("$accel" check --keys | sed 1d | cut -d' ' -f1 | sort)" \
    "accel-config(5) has every key of the schema table"
is "$(grep -o -E '^Environment: ACCEL_[A-Z0-9_]+' man5 | sort | uniq -d)" "" \
    "each key has a variable of its own"
[ "$(grep -c '^Environment: ACCEL_' man5)" -ge 100 ]
ok $? "and accel-config(5) names it"
printf 'distributed_type: FSDP\n' >one.yaml
is "$("$accel" config show one.yaml | sed 1d | cut -d' ' -f1 | sort)" \
    "$("$accel" check --keys | sed 1d | cut -d' ' -f1 | sort)" "accel config show has every key"
codes=$(awk '/^Exit codes:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' help)
is "$(awk '/^\.SH/ { on = /EXIT STATUS/ } on && tag { print; tag = 0 } on && /^\.TP/ { tag = 1 }' \
    man1)" "$codes" "accel(1) and --help have the same exit codes"
is "$(echo "$codes" | tr '\n' ' ')" "0 1 64 65 66 69 70 71 73 74 75 76 77 78 85 " \
    "which are those of the status table"


# ---- the library, variables and options of the plugin ----
is "$(grep -o -E '\baccel_[a-z0-9_]+\(' man3 | sort -u)" \
    "$(grep -o -E '\baccel_[a-z0-9_]+\(' -h "$ACCEL_SRC"/runtime/accel*.h | sort -u)" \
    "libaccel(3) has every function of accel.h"
is "$(grep -o -E '\bACCEL_[A-Z0-9]+ = [0-9]+' man3)" \
    "$(grep -o -E '\bACCEL_[A-Z0-9]+ = [0-9]+' "$ACCEL_SRC/runtime/accel.h")" "and every status"
mkdir pages
for name in $functions; do
    "$accel" man "$name" >"pages/$name.3" || echo "$name"
done >missing
is "$(cat missing)" "" "every function has a page"
is "$(for name in $functions; do
    plain "pages/$name.3" | awk -v name="$name" '/^\.S[SH]/ { part = $2 }
        part == "\"NAME\"" && index($0, name " - ") == 1 && length($0) > length(name " - ") { named = 1 }
        part == "\"SYNOPSIS\"" && index($0, name "(") { declared = 1 }
        END { exit !(named && declared) }' || echo "$name"
done)" "" "which names, describes and declares it"
plain pages/accel_is_main.3 >page
contains "$(cat page)" "accel_rank(3), " "and names those described with it"
like "$(plain pages/accel_add.3)" '^\.SH "OPS: ' "what holds for its section is there"
"$accel" man accel_opn >out 2>err
is "$?/$(cat out)" "64/" "a page that there is not"
contains "$(cat err)" "did you mean accel_open?" "with the nearest"
# A variable is a literal of its name; those of keys are of accel-config(5).
(cd "$ACCEL_SRC" && find runtime srun_plugin cli \( -name '*.[ch]' -o -name '*.cu' \) -exec \
    grep -h -o -E '"ACCEL_[A-Z_]*[A-Z]"' {} +) | tr -d '"' | sort -u |
    grep -v -E '^ACCEL_(OK|UNKNOWN|E[A-Z]+)$' |
    grep -v -x -F "$(sed '1,/nobody reads these/d' "$ACCEL_SRC/runtime/common/env_names.h" |
        grep -o 'ACCEL_[A-Z_]*[A-Z]"' | tr -d '"')" >variables
keys=$("$accel" check --keys | sed -e 1d -e 's/ .*//' -e 's/.*\.//' | tr '[:lower:]' '[:upper:]')
is "$(while read -r name; do
    grep -q "\b$name\b" man7 || echo "$keys" | grep -qx "${name#ACCEL_}" || echo "$name"
done <variables)" "" "accel(7) has every variable"
is "$(sed -n '/^\.SH "ENVIRONMENT"/,/^\.SH "PREEMPTION"/p' man7 | grep -o -E '\bACCEL_[A-Z_]*[A-Z]\b' | sort -u |
    grep -v -x -e ACCEL_KEY -e ACCEL_ENVIRONMENT -e ACCEL_MIXED_PRECISION -f variables)" "" "and no other"
is "$(grep -r -h -o --include='*.[ch]' '"accel-[a-z-]*"' "$ACCEL_SRC/srun_plugin" | tr -d '"' | sort -u |
    while read -r option; do grep -q -e "--$option\b" man7 || echo "$option"; done)" "" \
    "accel(7) has every option of the plugin"
"$accel" schema >schema.json
is "$("$accel" check --keys | sed -e 1d -e 's/ .*//' -e 's/.*\.//' | while read -r key; do
    grep -q "\"$key\"" schema.json || echo "$key"
done)" "" "the JSON Schema has every key"

# ---- the pages ----
if command -v mandoc >/dev/null 2>&1; then
    is "$(mandoc -Tlint accel.1 libaccel.3 accel-config.5 accel.7 pages/*.3 2>&1)" "" \
        "mandoc finds nothing"
else
    skip 1 "no mandoc"
fi
is "$(grep -E '^$|@[A-Z_]+@|SPDX' accel.1 libaccel.3 accel-config.5 accel.7 pages/*.3)" "" \
    "no empty line, no place of a template that nothing fills, no comment of its own"
is "$(grep -E '@[A-Z_]+@|SPDX' script)" "" "nor in the script"
is "$(grep -h -v '^\.' accel.1 libaccel.3 accel-config.5 pages/*.3 | grep -E '(^|[^\\])-' | head -n 3)" "" \
    "no hyphen that copies as another sign"
if command -v groff >/dev/null 2>&1; then
    is "$(groff -man -Tascii -ww -z accel.1 libaccel.3 accel-config.5 accel.7 pages/*.3 2>&1)" "" \
        "nor does groff"
else
    skip 1 "no groff"
fi
# The same tables make the same pages again, with the date that packages give.
passes "the pages are made of the tables of this build" cmp "$ACCEL_BUILD/cli/man/tables.txt" tables
pages_by() { # AWK FILE...
    by=$1
    shift
    rm -rf again
    mkdir again again/man1 again/man3 again/man5 again/man7 again/completions
    # shellcheck disable=SC2086 # busybox awk
    LC_ALL=C $by -F '\t' -v dir=again -f "$ACCEL_SRC/cli/man/tables.awk" \
        -f "$ACCEL_SRC/cli/man/header.awk" -f "$ACCEL_SRC/cli/man/roff.awk" \
        -f "$ACCEL_SRC/cli/man/completion.awk" -f "$ACCEL_SRC/cli/man/pages.awk" "$@"
}
set -- "$ACCEL_SRC/runtime/accel.h"
for file in "$ACCEL_SRC"/runtime/accel_*.h "$ACCEL_SRC"/cli/man/*.in; do
    set -- "$@" "$file"
done
for awk in awk mawk gawk busybox original-awk; do
    command -v "$awk" >/dev/null 2>&1 || continue
    [ "$awk" != busybox ] || awk='busybox awk'
    SOURCE_DATE_EPOCH=86400 pages_by "$awk" tables "$@"
    is "$(grep -h '^\.TH ' again/man?/* | cut -d' ' -f4 | sort -u)" 1970-01-02 \
        "$awk: the date is that of SOURCE_DATE_EPOCH"
    sed -i '/^\.TH /s/ 1970-01-02 / DATE /' again/man?/*
    # The headers in another order give libaccel(3) and the list of functions another order.
    is "$(for file in again/man[157]/* again/man3/accel_*; do
        sed '/^\.TH /s/ [12][0-9][0-9][0-9]-..-.. / DATE /' "$ACCEL_BUILD/cli/man/${file#again/}" |
            cmp -s - "$file" || echo "$file"
    done)" "" "and all else the same"
    is "$(sort again/completions/accel | cksum)" "$(sort script | cksum)" "as in the script"
done

# Forms of a comment and of a table that the real ones have seldom.
# shellcheck disable=SC2016 # backquotes of a comment
printf '/* SPDX */\n\n/* ---- who; what ---- */\n\n/* Makes x^2 of `x`.\n * Errors: none.\n' >made.h
printf ' *  - a bullet\n *    that goes on\n *\n *   code ~ 1\n * .end, that is all. */\n' >>made.h
printf 'int accel_made(void);\nint accel_other(void);\n\n#pragma GCC visibility pop\nint no;\n' >>made.h
printf 'command\tname=made\texample=e\tforms=--all CODE\fFILE\tdoc=one\ftwo\vafter\n' >made
printf 'option\tname=help\tletter=\\\targ=\tdoc=-x\n' >>made
for file in accel.1 function.3 completion.bash; do cp "$ACCEL_SRC/cli/man/$file.in" .; done
pages_by awk made made.h accel.1.in function.3.in completion.bash.in
is "$(sed -n '/^\.SH "NAME"/,/^The rules/p;/^\.SH "SEE/,$p' again/man3/accel_made.3)" \
    '.SH "NAME"
accel_made \- makes x\(ha2 of \(gax\(ga
.SH "SYNOPSIS"
.nf
.ft B
#include <accel.h>
.ft R
.fi
.PP
.nf
.ft B
int accel_made(void);
int accel_other(void);
.ft R
.fi
.SH "DESCRIPTION"
Makes x\(ha2 of \(gax\(ga.
.PP
Errors: none.
.IP \(bu 2
a bullet
that goes on
.PP
.nf
.RS 4
  code \(ti 1
.RE
.fi
.PP
\&.end, that is all.
.PP
The rules for all functions of the library (status and errors,
.SH "SEE ALSO"
\fBaccel_other\fR(3), \fBlibaccel\fR(3), \fBaccel\fR(1)' "a comment of every form"
is "$(sed -n '/^\.SS/,/^\.SH/p' again/man1/accel.1)" '.SS "accel made: "
\fBaccel \fR\fBmade\fR \fI\-\-all CODE\fR
.PP
\fBaccel \fR\fBmade\fR \fIFILE\fR
.PP
one
.br
two
.TP
\fB\-\e\fR, \fB\-\-\fR\fBhelp\fR
\-x
.PP
after
.PP
Example:
.PP
.nf
.RS 4
e
.RE
.fi
.SH "EXIT STATUS"' "a command with lines and a text after its options"
contains "$(cat again/completions/accel)" '_accel_words ""
        _accel_files -f
' "an operand, not the argument of an option"
SOURCE_DATE_EPOCH=never pages_by awk made made.h 2>err
is "$?" 1 "without a date no page is made"

# ---- where they are found ----
man_of_build=$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")/share/man/man7/accel.7
mkdir -p moved/bin moved/share/man/man1 moved/share/man/man3 moved/share/man/man5/accel-config.5 \
    moved/share/bash-completion/completions
cp "$accel" moved/bin/accel
echo "of the commands" >moved/share/man/man1/accel.1
echo "a script" >moved/share/bash-completion/completions/accel
is "$(moved/bin/accel man 1)" "of the commands" "a moved installation shows its own page"
is "$(moved/bin/accel completion bash)" "a script" "and its own script"
moved/bin/accel man 5 >out 2>err
is "$?/$(cat out)" 69/ "what cannot be read is an error"
like "$(cat err)" "^error.A0017.: cannot read '.*/moved/bin/../share/man/man5/accel-config.5': Is a dir" \
    "which names the file"
like "$(cat err)" '^  cure: reinstall accel completely' "and the cure"
if [ -f "$man_of_build" ]; then
    is "$(moved/bin/accel man 7)" "$(cat "$man_of_build")" "what it lacks is that of the prefix"
else
    is "$(moved/bin/accel man 7 2>&1)" "error[A0017]: cannot read '$man_of_build': No such file or directory
  cure: reinstall accel completely: make install" "so is a page that is missing"
fi
echo "of accel_open" | gzip >moved/share/man/man3/accel_open.3.gz
is "$(moved/bin/accel man accel_open)" "of accel_open" "a page that a package has compressed"
rm moved/share/bash-completion/completions/accel
mkdir moved/share/bash-completion/completions/accel
moved/bin/accel completion bash >out 2>err
is "$?/$(cat out)" 69/ "a script that cannot be read is an error"
# On a terminal man shows the page, if there is one.
if command -v script >/dev/null 2>&1; then
    mkdir programs without
    # shellcheck disable=SC2016 # for the program
    printf '#!/bin/sh\necho "man reads ${1##*moved/bin/}"\n' >programs/man
    chmod +x programs/man
    on_terminal() { # PATH PAGE
        script -qec "PATH='$1' moved/bin/accel man $2" /dev/null </dev/null |
            tr -d '\r\004\b' | sed 's/^^D//'
    }
    is "$(on_terminal "$tap_tmp/programs" 1)" "man reads ../share/man/man1/accel.1" \
        "on a terminal man shows it"
    is "$(on_terminal "$tap_tmp/programs" accel_open)" "man reads ../share/man/man3/accel_open.3.gz" \
        "a compressed one, too"
    is "$(on_terminal "$tap_tmp/without" 1)" "of the commands" "without man it is printed"
    is "$(PATH=$tap_tmp/programs:$PATH moved/bin/accel man 1)" "of the commands" \
        "and in a pipe"
else
    skip 4 "no script"
fi
"$accel" man 2 >out 2>err
is "$?/$(cat out)" "64/" "a section without a page is a usage error"
"$accel" completion fish >out 2>err
is "$?/$(cat out)" "64/" "a shell without a script is a usage error"
done_testing
