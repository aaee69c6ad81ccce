# SPDX-License-Identifier: Apache-2.0
#
# Cuts the public headers into entries for the manual page: a comment that begins in the first
# column and the declarations below it. Out: C source with the table of man_pages.h, or the
# names of the functions that it declares, one per line.
#
#     awk -f header.awk accel.h accel_ops.h ... >api_table.c
#     awk -v names=1 -f header.awk accel.h ...
function quoted(s) {
    gsub(/\\/, "&&", s)
    gsub(/"/, "\\\"", s)
    gsub(/\n/, "\\n\"\n    \"", s)
    return "\"" s "\""
}

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

function entry(    functions) {
    if (section == "" && text == "" && code == "")
        return
    functions = functions_of(code)
    if (functions != "")
        all = all functions " "
    rows = rows "{ " (section == "" ? "NULL" : quoted(section)) ",\n    " quoted(text) \
        ",\n    " quoted(code) ",\n    " quoted(functions) " },\n"
    section = text = code = ""
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
        text = text line "\n"
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
    if (names) {
        gsub(/ /, "\n", all)
        printf "%s", all
        exit
    }
    print "/* Made by header.awk from the public header: do not edit. */"
    print "#include \"cli/man/man_pages.h\"\n"
    print "const char api_rules[] =\n    " quoted(rules) ";\n"
    print "const struct api_entry api_table[] = {\n" rows "{ NULL, NULL, NULL, NULL },\n};"
}
