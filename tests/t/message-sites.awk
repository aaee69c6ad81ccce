# SPDX-License-Identifier: Apache-2.0
#
# Lists every place of the sources that makes an error: its code, file, text and hint, one
# line each, divided by tabs, without line numbers, so that moving code changes nothing. In: C
# files, named relative to the top of the sources. The calls that make errors are those of the
# table.
#
#     awk -f message-sites.awk FILE... | sort
BEGIN {
    # name, which argument is the code (or the code itself), the hint (0: none), the text
    call("accel_fail", 2, 3, 4)
    call("accel_fail_at", 2, 4, 5)
    call("accel_fail_nomem", "A0001", 0, 2)
    call("graph_fail", 2, 4, 5)
    call("report_add", 2, 4, 5)
    call("plugin_error", 1, 3, 4)
    call("cli_error", 1, 3, 4)
    call("cli_no_memory", "A0001", 0, 1)
    # functions of one file that get a part of the text: which argument is it
    part("checkpoint/hdf5/h5_layout.c", "failed", "A0806", 2)
    part("checkpoint/manifest/manifest_parse.c", "bad", "A0808", 2)
    part("runtime/comm/.*\\.c", "comm_fail_peer", "A0502", 3)
    part("runtime/data/dataset.c", "fail_errno", "A0701|A0702|A0703|A0710", 3)
    part("runtime/observe/lines_trim.c", "io_error", "A0711", 3)
    part("runtime/ops/.*\\.c", "op_misfit", "A0602", 7)
    part("runtime/ops/backward.c", "backward_refuse", "A0610", 2)
    part("runtime/run/prepare.c", "bad_job", "A0902", 2)
}

function call(name, code, hint, text) {
    code_of[name] = code
    hint_of[name] = hint
    text_of[name] = text
    names = names (names == "" ? "" : "|") name
}

function part(file, name, code, text) {
    part_in[++parts] = file
    part_name[parts] = name
    code_of[name] = code
    text_of[name] = text
}

# Splits the arguments of a call, of which `s` begins with the parenthesis, into arg[].
function split_call(s,    i, c, depth, n, from) {
    n = 1
    from = 2
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c == "\"" || c == "'") {
            for (i++; substr(s, i, 1) != c; i++)
                if (substr(s, i, 1) == "\\")
                    i++
        } else if (c == "(" || c == "[" || c == "{") {
            depth++
        } else if (c == ")" || c == "]" || c == "}") {
            if (--depth == 0)
                break
        } else if (c == "," && depth == 1) {
            arg[n++] = substr(s, from, i - from)
            from = i + 1
        }
    }
    arg[n] = substr(s, from, i - from)
    for (i = 1; i <= n; i++)
        arg[i] = one_line(arg[i])
    return n
}

# Blanks as one, literals that stand side by side as one.
function one_line(s) {
    gsub(/[ \t\n]+/, " ", s)
    gsub(/" "/, "", s)
    sub(/^ /, "", s)
    sub(/ $/, "", s)
    return s
}

# The codes in an expression, "A0801|A0802"; else the expression itself.
function codes(s,    out) {
    while (match(s, /A0[0-9][0-9][0-9]/)) {
        out = out (out == "" ? "" : "|") substr(s, RSTART, RLENGTH)
        s = substr(s, RSTART + RLENGTH)
    }
    return out
}

function one_file(path, text,    name, n, code, hint, all) {
    all = names
    for (n = 1; n <= parts; n++)
        if (path ~ ("^" part_in[n] "$"))
            all = all "|" part_name[n]
    while (match(text, "(^|[^a-z_])(" all ")\\(")) {
        name = substr(text, RSTART, RLENGTH - 1)
        sub(/^[^a-z_]/, "", name)
        text = substr(text, RSTART + RLENGTH - 1)
        n = split_call(substr(text, 1, 3000))
        if (n < text_of[name] || arg[1] ~ /^(const )?(struct )?[a-z_]+ \*?[a-z]+$/ ||
            arg[code_of[name]] ~ /^enum message code$/)
            continue # a declaration or definition
        code = code_of[name] ~ /^A/ ? code_of[name] : arg[code_of[name]]
        hint = hint_of[name] ? arg[hint_of[name]] : "(in " name ")"
        if (codes(code) != "")
            code = codes(code)
        gsub(/ /, "", code)
        printf "%s\t%s\t%s\t%s\n", code, path, arg[text_of[name]], hint
    }
}

FNR == 1 && NR > 1 { one_file(path, whole) }
FNR == 1 { path = FILENAME; whole = "" }
{ whole = whole $0 "\n" }
END { one_file(path, whole) }
