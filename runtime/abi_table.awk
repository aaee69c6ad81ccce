# SPDX-License-Identifier: Apache-2.0
#
# The public interface for bindings. In: the public headers. Out: a C program, which prints every
# struct with the offsets and sizes of its members, every constant and every function as JSON, a
# line each. Knows C only as far as the headers use it.
#
#     awk -f abi_table.awk accel.h accel_ops.h ... >abi_table.c

# What the library hands to functions of the program, by address: it grows at its end.
BEGIN {
    given["accel_piece"] = given["accel_batch"] = 1
    print "#include <stdio.h>\n#include \"accel.h\"\n#include \"accel_ckpt.h\""
    print "#include \"accel_safetensors.h\"\n"
    print "#define SIZE(type) (sizeof(type))"
    print "#define MEMBER(type, m) offsetof(type, m), sizeof(((type *)0)->m)\n"
    print "int main(void)\n{"
    print "    printf(\"{\\n\\\"api\\\": %d,\\n\\\"table\\\": [\\n\", ACCEL_API_VERSION);"
}

function row(format, values) {
    printf "    printf(\"%s{%s}\"%s);\n", rows++ ? ",\\n" : "", format, values
}

# A text of the table; the headers have no quotes or backslashes there.
function pair(key, value) {
    return "\\\"" key "\\\": \\\"" value "\\\""
}

function plain(s) {
    gsub(/[ \t]+/, " ", s)
    gsub(/^ | $/, "", s)
    return s
}

# One declaration of a struct's body: "float beta1, beta2", "int (*next)(void *user)", "char a[9]".
function member(type, text,    n, i, part, name, base, array) {
    if (match(text, /\(\*[a-z0-9_]+\)/)) {
        name = substr(text, RSTART + 2, RLENGTH - 3)
        row(pair("struct", type) ", " pair("member", name) ", " pair("type", plain(text)) \
            ", \\\"offset\\\": %zu, \\\"size\\\": %zu", ", MEMBER(" type ", " name ")")
        return
    }
    n = split(text, part, ",")
    for (i = 1; i <= n; i++) {
        name = part[i]
        array = match(name, /\[.*/) ? substr(name, RSTART) : ""
        sub(/\[.*/, "", name)
        match(name, /[A-Za-z0-9_]+ *$/)
        base = i == 1 ? plain(substr(name, 1, RSTART - 1)) : base
        name = plain(substr(name, RSTART))
        row(pair("struct", type) ", " pair("member", name) ", " pair("type", base array) \
            ", \\\"offset\\\": %zu, \\\"size\\\": %zu", ", MEMBER(" type ", " name ")")
    }
}

# typedef struct NAME { ... } TYPE
function structure(text,    head, type, tag, body, inner, n, i, part, kind) {
    head = substr(text, 1, index(text, "{") - 1)
    tag = plain(head)
    sub(/.*struct /, "", tag)
    type = text
    sub(/.*\}/, "", type)
    type = plain(type)
    body = substr(text, index(text, "{") + 1)
    sub(/\}[^}]*$/, "", body)
    kind = body ~ /^ *size_t bytes;/ ? "sized" : tag in given ? "given" : "frozen"
    row(pair("struct", type) ", " pair("tag", tag) ", " pair("kind", kind) ", \\\"size\\\": %zu", \
        ", SIZE(" type ")")
    # a struct within: its members first, then it is a type like others
    while (match(body, /struct [a-z_]+ \{[^}]*\}/)) {
        inner = substr(body, RSTART, RLENGTH)
        body = substr(body, 1, RSTART - 1) "struct " substr(inner, 8, index(inner, "{") - 9) \
            substr(body, RSTART + RLENGTH)
        structure("typedef " inner " struct " plain(substr(inner, 8, index(inner, "{") - 9)))
    }
    n = split(body, part, ";")
    for (i = 1; i <= n; i++)
        if (plain(part[i]) != "")
            member(type, plain(part[i]))
}

function enumeration(text,    type, n, i, part, name) {
    type = text
    sub(/.*\}/, "", type)
    sub(/^[^{]*\{/, "", text)
    sub(/\}.*/, "", text)
    n = split(text, part, ",")
    for (i = 1; i <= n; i++) {
        name = plain(part[i])
        sub(/ *=.*/, "", name)
        if (name != "")
            row(pair("enum", plain(type)) ", " pair("constant", name) ", \\\"value\\\": %d", \
                ", (int)" name)
    }
}

function declaration(text,    name) {
    text = plain(text)
    if (text ~ /^typedef struct .*\{/)
        structure(text)
    else if (text ~ /^typedef enum/)
        enumeration(text)
    else if (text ~ /^typedef struct/)
        row(pair("handle", substr(text, match(text, /[a-z0-9_]+$/))), "")
    else if (match(text, /\(\*accel_[a-z0-9_]+\)/))
        row(pair("callback", substr(text, RSTART + 2, RLENGTH - 3)) ", " pair("declaration", text), "")
    else if (match(text, /accel_[a-z0-9_]+\(/))
        row(pair("function", substr(text, RSTART, RLENGTH - 1)) ", " pair("declaration", text), "")
}

FNR == 1 { started = 0 }

# The version itself is not one of the things that stay.
/^#define ACCEL_[A-Z0-9_]+ [-(0-9]/ && $2 != "ACCEL_API_VERSION" {
    row(pair("constant", $2) ", \\\"value\\\": %d", ", (int)" $2)
    next
}

/^#/ {
    if (/visibility push/)
        started = 1
    if (/visibility pop/)
        started = 0
    next
}

started {
    line = $0
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    if (commenting) {
        if (line !~ /\*\//)
            next
        sub(/.*\*\//, "", line)
        commenting = 0
    }
    if (line ~ /\/\*/) {
        sub(/\/\*.*/, "", line)
        commenting = 1
    }
    text = text " " line
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        depth += (c == "{") - (c == "}")
    }
    if (depth == 0 && line ~ /; *$/) {
        sub(/; *$/, "", text)
        declaration(text)
        text = ""
    }
}

END {
    print "    printf(\"\\n]\\n}\\n\");\n    return 0;\n}"
}
