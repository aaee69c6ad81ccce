# SPDX-License-Identifier: Apache-2.0
#
# The places of completion.bash.in: the script offers what the parsers accept and no more. Words of
# a list are divided by line ends.
BEGIN {
    # Placeholders of a form or of an option's argument, and the calls that offer words for them.
    # KEY=VALUE stands before KEY, which it begins with.
    offers = split("FILE PATH DIR PROGRAM KEY=VALUE KEY CODE MODEL FUNCTION", offer_word, " ")
    split("_accel_files -f,_accel_files -f,_accel_files -d,_accel_files -c -f,_accel_settings," \
        "_accel_words \"$_accel_keys\",_accel_words \"$_accel_codes\"," \
        "_accel_words \"$_accel_models\",_accel_words \"$_accel_functions\"", offer_call, ",")
}

function fill_completion(place) {
    if (place == "COMMAND_NAMES") put_names(0)
    else if (place == "JSON_COMMANDS") put_names(1)
    else if (place == "PATHS") put_paths()
    else if (place == "FUNCTIONS") put(substr(functions, 1, length(functions) - 1))
    else if (place == "FLAGS") put_flags("flag")
    else if (place == "VALUE_FLAGS") put_value_flags()
    else if (place == "VALUES") put_values()
    else if (place == "OPTION_ARGUMENTS") put_option_arguments()
    else if (place == "COMMAND_ARMS") put_command_arms()
    else put("@" place "@")
}

# --json in front of the command completes only to commands that take it.
function put_names(only_json,    c, o, takes) {
    for (c = 1; c <= rows["command"]; c++) {
        takes = !only_json
        for (o = command(c, "first"); o <= command(c, "last"); o++)
            takes = takes || option(o, "name") == "json"
        if (takes)
            put(command(c, "name") " ")
    }
}

function put_paths(    k) {
    for (k = 1; k <= rows["key"]; k++)
        put((k > 1 ? "\n" : "") key(k, "path"))
}

function put_flags(kind,    word, n, i) {
    n = split(list[kind], word, "\n")
    for (i = 1; i <= n; i++)
        put("--" word[i] "\n")
}

# All keys of a config have a value. A key that two rows name is offered once.
function put_value_flags(    k) {
    put_flags("value flag")
    for (k = 1; k <= rows["key"]; k++)
        if (key(k, "first"))
            put("--" key(k, "name") "\n")
}

# May the key be written without its map? Its name must differ from every top-level key, and be the
# first of its kind.
function stands_alone(row,    k) {
    for (k = 1; k <= rows["key"]; k++)
        if (key(k, "section") == "" && key(k, "name") == key(row, "name"))
            return 0
    return key(row, "first")
}

# The values of a key, found by its path and, where that is clear, by its name. Numbers and free
# text have nothing to offer.
function put_values(    k, words) {
    for (k = 1; k <= rows["key"]; k++) {
        words = (key(k, "type") == "bool" ? "true false" : "") key(k, "value")
        if (words != "")
            put("    " key(k, "path") (stands_alone(k) ? " | " key(k, "name") : "") \
                ") _accel_words \"" words "\" ;;\n")
    }
}

# The call of the script that offers words for a placeholder; a literal word offers itself, ":"
# nothing.
function offer(what,    i) {
    for (i = 1; i <= offers; i++)
        if (index(what, offer_word[i]) == 1)
            return offer_call[i]
    return what ~ /^[a-z0-9]/ ? "_accel_words " what : ":"
}

# Case arms for the word after an option that takes an argument. "a|B" makes one call for each.
function put_option_arguments(    c, o, word, n, i) {
    for (c = 1; c <= rows["command"]; c++)
        for (o = command(c, "first"); o <= command(c, "last"); o++) {
            if (option(o, "arg") == "")
                continue
            put("    " command(c, "name") ":--" option(o, "name"))
            if (option(o, "letter") != "")
                put(" | " command(c, "name") ":-" option(o, "letter"))
            put(")\n")
            n = split(option(o, "arg"), word, "|")
            for (i = 1; i <= n; i++)
                put("        " offer(word[i]) "\n")
            put("        ;;\n")
        }
}

# Offers every literal word of the forms as the first operand, then what the first placeholder of
# any form stands for. The parser takes no more operands than the longest form has; "...": any
# number.
function put_operands(c,    line, n, i, words, most, literals, place) {
    n = split(command(c, "forms"), line, "\n")
    for (i = 1; i <= n; i++) {
        words = split(line[i], word, / /)
        most = words > most ? words : most
        if (line[i] ~ /^[a-z0-9]/)
            literals = literals word[1] " "
        if (place == "" && line[i] !~ /^-/ && match(line[i], /[A-Z][^] ]*/))
            place = substr(line[i], RSTART, RLENGTH)
    }
    if (most && index(command(c, "forms"), "...") == 0)
        put("        [ \"$operands\" -lt " most " ] || return\n")
    put("        [ \"$operands\" -ne 0 ] || _accel_words \"" literals "\"\n")
    put("        " offer(place) "\n")
}

# The case arm of each command: options after a dash, --help first, hidden aliases not; else
# operands.
function put_command_arms(    c, o) {
    for (c = 1; c <= rows["command"]; c++) {
        put("    " command(c, "name") ")\n        case $cur in -*)\n            _accel_words \"--" \
            option(command(c, "last"), "name"))
        for (o = command(c, "first"); o < command(c, "last"); o++)
            if (!option(o, "hidden"))
                put(" --" option(o, "name"))
        put("\"\n" (command(c, "name") == "launch" ? "            _accel_launch_flags\n" : "") \
            "            return\n            ;;\n        esac\n")
        put_operands(c)
        put("        ;;\n")
    }
}
