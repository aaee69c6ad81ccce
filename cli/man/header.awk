# SPDX-License-Identifier: Apache-2.0
#
# Cuts the public headers into entries for the manual pages: a comment that begins in the first
# column and the declarations below it. Out: the arrays entry_*, numbered from 1, and `rules`,
# the comment that the first header begins with; or the names of the functions, one per line.
#
#     awk -v names=1 -f header.awk accel.h accel_ops.h ...

# The words of a line of a comment.
function inner(line) {
    sub(/^ ?\/?\*\/?( |$)/, "", line)
    sub(/ *\*\/$/, "", line)
    return line
}

# "accel_open accel_close": what the declarations of an entry declare.
function functions_of(code,    found) {
    gsub(/\/\*[^*]*\*\//, "", code)
    while (match(code, /accel_[a-z0-9_]+\(/)) {
        found = found (found == "" ? "" : " ") substr(code, RSTART, RLENGTH - 1)
        code = substr(code, RSTART + RLENGTH)
    }
    return found
}

function entry() {
    if (section == "" && comment == "" && code == "")
        return
    entries++
    # The heading, where a section of the header begins; what is then said is about all of it.
    entry_section[entries] = section
    entry_start[entries] = section != "" ? entries : entry_start[entries - 1]
    entry_text[entries] = comment
    entry_code[entries] = code
    entry_functions[entries] = functions_of(code)
    if (entry_functions[entries] != "")
        functions = functions entry_functions[entries] " "
    section = comment = code = ""
}

# Each file is read from its first section to the end of what it exports. The rules are the
# first comment of the first one.
FNR == 1 {
    entry()
    started = over = depth = 0
}

over { next }

/^#pragma GCC visibility pop/ {
    entry()
    over = 1
    next
}

/^\/\* ---- / {
    entry()
    started = 1
    section = $0
    sub(/^\/\* ---- /, "", section)
    sub(/ -+( \*\/)?$/, "", section)
    commenting = $0 !~ /\*\/$/
    next
}

/^\/\*/ && !commenting {
    if (code != "" || section != "")
        entry()
    commenting = 1
}

commenting {
    line = inner($0)
    if (started)
        comment = comment line "\n"
    else if (!ruled && $0 !~ /^\/\* SPDX/)
        rules = rules line "\n"
    if ($0 ~ /\*\/ *$/) {
        commenting = 0
        ruled = 1
    }
    next
}

started && /^$/ {
    if (depth == 0 && code != "")
        entry()
    next
}

started {
    if (section != "")
        entry()
    code = code $0 "\n"
    depth += gsub(/\{/, "{") - gsub(/\}/, "}")
}

END {
    entry()
    gsub(/ /, "\n", functions)
    if (names)
        printf "%s", functions
}
