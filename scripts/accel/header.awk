# SPDX-License-Identifier: Apache-2.0
#
# Cuts a public header into entries for the manual page: a comment that begins in the first
# column and the declarations below it. Out: C source with the table of man_pages.h.
#
#     awk -f header.awk accel.h >api_table.c
BEGIN {
    print "/* Made by header.awk from the public header: do not edit. */"
    print "#include \"scripts/accel/man_pages.h\""
    print ""
}

function quoted(s) {
    gsub(/\\/, "\\\\", s)
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

function entry() {
    if (section == "" && text == "" && code == "")
        return
    rows = rows "{ " (section == "" ? "NULL" : quoted(section)) ",\n    " quoted(text) \
        ",\n    " quoted(code) " },\n"
    section = text = code = ""
}

/^#pragma GCC visibility pop/ { exit }

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
    print "const char api_rules[] =\n    " quoted(rules) ";\n"
    print "const struct api_entry api_table[] = {\n" rows "{ NULL, NULL, NULL },\n};"
}
