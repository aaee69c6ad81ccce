# SPDX-License-Identifier: Apache-2.0
#
# Makes the manual pages and the completion script in the folders man1 ... and completions of
# `dir`: fills the templates from the arrays of tables.awk and header.awk, through roff.awk and
# completion.awk. In: what tables.c prints, the public headers, the templates.
#
#     awk -F '\t' -v dir=DIR -f tables.awk -f header.awk -f roff.awk -f completion.awk \
#         -f pages.awk tables.txt accel.h ... accel.1.in ...

# What stands at @NAME@. A name of a kind of rows stands for their first fields.
function fill_place(place) {
    if (place == "COMMANDS") put_commands()
    else if (place == "EXIT_STATUSES") put_rows("exit")
    else if (place == "KEYS") put_sections()
    else if (place == "AREAS") put_rows("area")
    else if (place == "SYSCONFDIR") text(list["sysconfdir"])
    else if (place == "RULES") comment_text(rules)
    else if (place == "ENTRIES") put_entries()
    else if (place == "TITLE") put(toupper(function_name))
    else if (place == "FUNCTION") text(function_name)
    else if (place == "SUMMARY") text(summary_of(of))
    else if (place == "SYNOPSIS") put_synopsis()
    else if (place == "COMMENT") comment_text(entry_text[of])
    else if (place == "SECTION") put_section_rules(entry_start[of])
    else if (place == "SEE_ALSO") put_see_also()
    else if (tolower(place) in list) put(list[tolower(place)])
    else fill_completion(place)
}

# A place alone in its line prints whole lines, or nothing; any other a part of its line.
function page(name, file,    i, line, alone, start, place) {
    out = dir "/" file
    line_start = filling = 1
    after_heading = column = 0
    for (i = 1; i <= template_lines[name]; i++) {
        line = template[name, i]
        alone = line ~ /^@[A-Z_]+@$/
        while (match(line, /@[A-Z_]+@/)) {
            start = RSTART
            place = substr(line, start + 1, RLENGTH - 2)
            markup(substr(line, 1, start - 1))
            line = substr(line, start + length(place) + 2)
            fill_place(place)
        }
        if (!alone)
            markup(line "\n")
    }
    close(out)
}

# ---- accel(1) ------------------------------------------------------------------------------------

# "-j, --json=ARG" as a tag and its help as the text.
function put_option(o) {
    tag()
    if (option(o, "letter") != "") {
        bold("-" option(o, "letter"))
        text(", ")
    }
    bold("--")
    bold(option(o, "name"))
    if (option(o, "arg") != "") {
        text("=")
        italic(option(o, "arg"))
    }
    end_tag()
    text(option(o, "doc") "\n")
}

# The forms of a command, one per line.
function put_forms(c,    line, n, i) {
    n = split(command(c, "forms"), line, "\n")
    for (i = 1; i == 1 || i <= n; i++) {
        form()
        bold("accel ")
        bold(command(c, "name"))
        text(command(c, "takes"))
        if (line[i] != "") {
            text(" ")
            italic(line[i])
        }
        end_tag()
    }
}

# The same texts as --help: form, description, options, what stands after argp's vertical tab,
# example.
function put_commands(    c, o, doc, after) {
    for (c = 1; c <= rows["command"]; c++) {
        heading(".SS", "accel " command(c, "name") ": " command(c, "summary"))
        put_forms(c)
        doc = command(c, "doc") "\v"
        after = index(doc, "\v")
        paragraph(substr(doc, 1, after - 1))
        for (o = command(c, "first"); o <= command(c, "last"); o++)
            if (!option(o, "hidden"))
                put_option(o)
        paragraph(substr(doc, after + 1, length(doc) - after - 1))
        paragraph("Example:")
        example(command(c, "example"))
    }
}

# Rows of a name and a text: exit statuses, areas of messages.
function put_rows(kind,    i) {
    for (i = 1; i <= rows[kind]; i++) {
        bold_tag(row[kind, i, "name"])
        text(row[kind, i, "text"] "\n")
    }
}

# ---- accel-config(5) -----------------------------------------------------------------------------

# What a key may hold: "One of a, b", "A whole number from 1 to 9" ..., its default and the values
# that are refused.
function values_text(k,    s, words) {
    words = key(k, "value")
    gsub(/ /, ", ", words)
    if (key(k, "type") == "bool")
        s = "true or false"
    else if (key(k, "type") == "int")
        s = sprintf("A whole number from %.0f to %.0f", key(k, "min"), key(k, "max"))
    else if (key(k, "type") == "number")
        s = sprintf("A number from %g to %.10g", key(k, "min"), key(k, "max"))
    else if (key(k, "type") == "string")
        s = sprintf("Text of at most %.0f bytes", key(k, "max"))
    else if (key(k, "type") == "bools")
        s = "Three of true and false"
    # Words beside a number or a text are further choices: ", or auto".
    if (key(k, "type") == "enum")
        s = "One of" substr(words, 2)
    else if (words != "")
        s = s ", or" substr(words, 2)
    if (key(k, "default") != "")
        s = s ". Default: " key(k, "default")
    words = key(k, "refused")
    gsub(/ /, ", ", words)
    return s "." (words == "" ? "" : " Refused:" substr(words, 2) ".")
}

# Who acts on the key, and the variable that sets it. `ours`: the values libaccel accepts, "*" for
# all of them.
function use_text(k,    s, ours) {
    ours = key(k, "ours")
    if (key(k, "use") == "honoured")
        s = ours == "" || ours == "*" ? "\nUsed by libaccel and passed on to the program." \
            : "\nPassed on to the program; libaccel supports: "
    else if (key(k, "use") == "handed on")
        s = "\nPassed on to the program" (ours == "*" ? "; libaccel supports every value." \
            : ours != "" ? "; libaccel accepts: " \
            : key(k, "moot") != "" ? "." : "; libaccel refuses it.")
    if (s ~ /: $/) {
        gsub(/\|/, ", ", ours)
        s = s ours "."
    }
    if (key(k, "moot") != "")
        s = s "\n" (ours != "" ? "Any other value" : "It") " has no effect in libaccel: " \
            key(k, "why") "."
    if (key(k, "variable") != "")
        s = s "\nEnvironment: " key(k, "variable") "."
    return s
}

# A refused key may still have values that change nothing.
function put_key(k,    before) {
    bold_tag(key(k, "name"))
    before = key(k, "use") == "replaced" ? "Replaced, with a note: " \
        : key(k, "use") == "no effect" ? "Accepted, without effect: " : ""
    if (key(k, "use") != "refused")
        text(before key(k, "help") ".\n" values_text(k) use_text(k) "\n")
    else if (key(k, "ours") != "")
        text("Accepted: " key(k, "ours") ".\nOther values are refused: " key(k, "help") ".\n")
    else
        text("Refused: " key(k, "help") ".\n")
}

# Maps in the order in which the table first names them, their rows in its order, with the note on
# their prefix, which all keys of a map have or none, in front.
function put_sections(    first, k, section, seen, prefix) {
    for (first = 1; first <= rows["key"]; first++) {
        section = key(first, "section")
        if (seen[section]++)
            continue
        heading(".SS", section == "" ? "Top level" : section)
        prefix = ""
        for (k = first; prefix == "" && k <= rows["key"]; k++)
            if (key(k, "section") == section)
                prefix = key(k, "prefix")
        if (prefix != "")
            paragraph("The prefix " prefix " may be omitted.")
        for (k = first; k <= rows["key"]; k++)
            if (key(k, "section") == section)
                put_key(k)
    }
}

# ---- libaccel(3) and the pages of its functions --------------------------------------------------

# The header's comments have four forms: bullets " - ", their continuation (three blanks), code
# (two blanks, or more than three) and plain text. "Errors:" begins a line of its own.
function is_code(line) { return line ~ /^  / && line !~ /^   ([^ ]|$)/ }

# A comment as paragraphs, bullets and examples.
function comment_text(words,    line, n, i, open, code) {
    n = split(words, line, "\n") - 1
    for (i = 1; i <= n; i++) {
        if (is_code(line[i])) {
            code = line[i]
            while (i < n && is_code(line[i + 1]))
                code = code "\n" line[++i]
            example(code)
            open = 0
        } else if (line[i] ~ /^ - /) {
            request(".IP \\(bu 2")
            text(substr(line[i], 4) "\n")
            open = 1
        } else if (line[i] == "") {
            open = 0
        } else {
            if (!open || line[i] ~ /^Errors:/)
                form()
            sub(/^ +/, "", line[i])
            text(line[i] "\n")
            open = 1
        }
    }
}

# Sections of the header become sections of the page; entries keep their order.
function put_entries(    i) {
    for (i = 1; i <= entries; i++) {
        if (entry_section[i] != "")
            heading(".SH", toupper(entry_section[i]))
        if (entry_code[i] != "")
            code_lines(entry_code[i])
        comment_text(entry_text[i])
    }
}

# Half a line about the function: the first sentence of its comment, if it is short and made of
# words, else the heading of its section.
function summary_of(i,    words) {
    words = entry_text[i]
    sub(/[.:;(].*/, "", words)
    gsub(/\n/, " ", words)
    if (length(words) >= 72 || words !~ /^[A-Z]/) {
        words = entry_section[entry_start[i]]
        sub(/;.*/, "", words)
        return words
    }
    sub(/ $/, "", words)
    return tolower(substr(words, 1, 1)) substr(words, 2)
}

function put_synopsis() {
    code_lines("#include <accel.h>")
    code_lines(entry_code[of])
}

# What the header says once for all functions of a section.
function put_section_rules(i) {
    if (entry_text[i] == "")
        return
    heading(".SH", toupper(entry_section[i]))
    comment_text(entry_text[i])
}

# The functions declared in the same entry, then the pages of the whole.
function put_see_also(    word, n, i) {
    n = split(entry_functions[of] " libaccel", word, " ")
    for (i = 1; i <= n; i++)
        if (word[i] != function_name) {
            bold(word[i])
            text("(3), ")
        }
    bold("accel")
    text("(1)\n")
}

# `of`: the entry that declares the function.
function put_function_pages(    word, n, i) {
    for (of = 1; of <= entries; of++) {
        n = split(entry_functions[of], word, " ")
        for (i = 1; i <= n; i++) {
            function_name = word[i]
            page("function.3", "man3/" function_name ".3")
        }
    }
}

# SOURCE_DATE_EPOCH makes pages reproducible: packages are built twice and compared.
END {
    epoch = ENVIRON["SOURCE_DATE_EPOCH"]
    clock = "date -u +%Y-%m-%d" (epoch == "" ? "" : " -d @" epoch)
    if ((clock | getline list["date"]) <= 0)
        exit 1 # it has said why
    page("accel.1", "man1/accel.1")
    page("libaccel.3", "man3/libaccel.3")
    page("accel-config.5", "man5/accel-config.5")
    page("accel.7", "man7/accel.7")
    page("completion.bash", "completions/accel")
    put_function_pages()
}
