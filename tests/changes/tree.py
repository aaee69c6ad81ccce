# SPDX-License-Identifier: Apache-2.0
#
# A tree that is built, and how its parts are made again one by one: make says the commands
# of all objects, archives and programs once, then single ones are run without make. In: the
# folder of a build. Never changes a tree but the one it is given.
"""Objects, archives and programs of a build tree."""

import os
import re
import shlex
import subprocess

SOURCES = ("runtime", "checkpoint", "cli", "srun_plugin", "tests", "examples")
GOALS = ("all", "test-programs")
CODE = (".c", ".cc", ".cu")
MOST = 25   # sources: a change of a header that more include costs too much time


class Failed(Exception):
    """A command that had to work ended with an error; the text is its output."""


def run(command, folder, seconds=600, env=None):
    """Runs it in a group of its own. Returns status and output; None: out of time."""
    child = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True)
    try:
        output = child.communicate(timeout=seconds)[0]
        return child.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        # what it started ends with it, also where it ended by itself
        for signal in (15, 9):
            try:
                os.killpg(child.pid, signal)
                child.wait(timeout=15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        child.stdout.close()


def listed_by(goal, folder):
    """What a goal of make lists. Under another make it would say where it is, too."""
    made = subprocess.run(["make", "--no-print-directory", "-s", goal], cwd=folder,
                          capture_output=True, check=True)
    return made.stdout.decode().split()


class Tree:
    """Commands of a build tree, and which product has which object."""

    def __init__(self, folder):
        self.folder = folder
        self.compiles = {}  # object -> (source, arguments of the compiler)
        self.links = {}     # product -> (inputs, arguments of libtool)
        self.read(self.commands())
        self.reached = self.headers()

    def commands(self):
        listed = subprocess.run(["find", *SOURCES, "-name", "*.c", "-o", "-name", "*.cc",
                                 "-o", "-name", "*.cu"],
                                cwd=self.folder, capture_output=True, check=True)
        self.units = listed_by("print-unit-tests", self.folder)
        pretend = [word for path in listed.stdout.decode().split() for word in ("-W", path)]
        made = subprocess.run(["make", "-n", "V=1", *pretend, *GOALS, *self.units], cwd=self.folder,
                              capture_output=True, check=False)
        if made.returncode:
            raise Failed(made.stderr.decode())
        return made.stdout.decode().replace("\\\n", " ").splitlines()

    def read(self, lines):
        for line in lines:
            line = re.sub(r"`test -f '[^']*' \|\| echo '[^']*'`", "", line)
            compiled = re.search(r"\b((?:gcc|cc|clang|g\+\+|clang\+\+) [^;]*? -c -o (\S+) "
                                 r"(\S+\.(?:cc?|cu)))\b", line)
            linked = re.search(r"(\S*libtool\b.*--mode=link .* -o (\S+) (.*))$", line)
            module = re.search(r"^((?:gcc|g\+\+) +-shared .* -o (\S+\.so) (.*))$", line)
            if compiled:
                words = shlex.split(re.sub(r"-M[TF] \S+|-MD|-MP", "", compiled.group(1)))
                self.compiles[compiled.group(2)] = (os.path.normpath(compiled.group(3)),
                                                    words[:words.index("-c")])
            elif module:
                inputs = [re.sub(r"\.libs/([^/]*)\.a$", r"\1.la", os.path.normpath(word))
                          for word in shlex.split(module.group(3))
                          if re.search(r"\.(?:o|a)$", word)]
                self.links[module.group(2)] = (inputs, shlex.split(module.group(1)))
            elif linked:
                inputs = [os.path.normpath(word) for word in shlex.split(linked.group(3))
                          if re.search(r"\.(?:lo|o|la)$", word)]
                self.links[linked.group(2)] = (inputs, ["/bin/sh"]
                                               + shlex.split(linked.group(1)))

    # ---- which is made of what -----------------------------------------------------------

    def objects_of(self, source):
        """Those made of a source, or of all sources that a header reaches."""
        sources = {source} if source.endswith(CODE) else self.reached.get(source, set())
        return [name for name, (path, _) in self.compiles.items() if path in sources]

    def flags_of(self, source):
        """The source that shows a header, or itself, and what clang needs to read it."""
        for name in self.objects_of(source):
            path, words = self.compiles[name]
            kind = ["-x", "c++"] if "c++" in words else []
            return path, kind + [word for word in words[1:]
                                 if re.match(r"-[DI]|-std|-isystem", word)]
        return None

    def headers(self):
        """Header -> sources that include it, directly or not, as far as names tell."""
        direct, reached = {}, {}
        known = {os.path.basename(path): path for path in self.listed(".h")}
        sources = {path for path, _ in self.compiles.values()}
        for path in list(known.values()) + sorted(sources):
            with open(os.path.join(self.folder, path), encoding="utf-8") as text:
                names = re.findall(r'^ *# *include *"([^"]+)"', text.read(), re.M)
            direct[path] = {known[os.path.basename(n)] for n in names
                            if os.path.basename(n) in known}
        for source in sources:
            seen, todo = set(), list(direct[source])
            while todo:
                header = todo.pop()
                if header not in seen:
                    seen.add(header)
                    reached.setdefault(header, set()).add(source)
                    todo += direct[header]
        return {header: who for header, who in reached.items() if len(who) <= MOST}

    def listed(self, ending):
        """Files below the folders of source. Those of tests come first: of two files of one
        name, the last counts."""
        found = [os.path.relpath(os.path.join(at, name), self.folder)
                 for top in SOURCES for at, _, names in os.walk(os.path.join(self.folder, top))
                 for name in names if name.endswith(ending)]
        return sorted(found, key=lambda path: (path.startswith("tests/"), path), reverse=True)

    def is_archive(self, product):
        """A library that other products are made of, and not loaded by itself."""
        return product.endswith(".la") and "-rpath" not in self.links[product][1]

    def holders(self, name):
        """Archives and then products that hold an object, or an archive that does."""
        archives, products, todo = [], [], [name]
        while todo:
            part = todo.pop()
            for product, (inputs, _) in self.links.items():
                if part in inputs and product not in archives + products:
                    if self.is_archive(product):
                        archives.append(product)
                        todo.append(product)
                    else:
                        products.append(product)
        return archives, products

    # ---- making --------------------------------------------------------------------------

    def file_of(self, name):
        """Where libtool keeps an object (as shared libraries need it) or an archive."""
        if name.endswith(".o"):
            return name
        folder, base = os.path.split(name)
        return os.path.join(folder, ".libs", re.sub(r"\.lo$", ".o", re.sub(r"\.la$", ".a", base)))

    def compile(self, name):
        """Makes an object again. Returns the compiler's complaint, or nothing."""
        source, words = self.compiles[name]
        shared = ["-fPIC", "-DPIC"] if name.endswith(".lo") else []
        words = [word for word in words if word != "-Werror"]
        status, said = run([*words, *shared, "-w", "-c", "-o", self.file_of(name), source],
                           self.folder, 120)
        return None if status == 0 else said or "no end"

    def archive(self, name):
        for product in self.holders(name)[0]:
            status, said = run(["ar", "r", self.file_of(product), self.file_of(name)],
                               self.folder, 60)
            if status != 0:
                raise Failed(said)

    def link(self, product):
        status, said = run(self.links[product][1], self.folder, 120)
        return None if status == 0 else said or "no end"
