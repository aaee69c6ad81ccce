# examples/: built against the shared library as a user would; run from the tree
# (-no-install: real executables, not libtool scripts).
noinst_PROGRAMS += examples/train examples/minimal
examples_train_SOURCES = examples/train.c
examples_train_LDADD = libaccel.la
examples_train_LDFLAGS = -no-install
examples_minimal_SOURCES = examples/minimal.c
examples_minimal_LDADD = libaccel.la
examples_minimal_LDFLAGS = -no-install
EXTRA_DIST += examples/sample.txt
