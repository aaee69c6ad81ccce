# tensor/
libaccel_core_la_SOURCES += \
	runtime/tensor/arena.c \
	runtime/tensor/graph.c \
	runtime/tensor/graph.h \
	runtime/tensor/tape.h \
	runtime/tensor/units.c \
	runtime/tensor/units.h

unit_tests += tests/unit/test_arena
tests_unit_test_arena_SOURCES = tests/unit/test_arena.c
tests_unit_test_arena_LDADD = $(unit_ldadd)
