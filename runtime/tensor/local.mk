# tensor/
libaccel_core_la_SOURCES += \
	runtime/tensor/arena.c \
	runtime/tensor/graph.c \
	runtime/tensor/graph.h \
	runtime/tensor/tape.h \
	runtime/tensor/units.c \
	runtime/tensor/units.h

unit_tests += tests/unit/test_arena
# Each call for memory fails once.
scarce_wraps = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=aligned_alloc \
	-Wl,--wrap=strdup -Wl,--wrap=realloc -Wl,--wrap=reallocarray -Wl,--wrap=free \
	-Wl,--wrap=mmap -Wl,--wrap=munmap -Wl,--wrap=mprotect -Wl,--wrap=arena_alloc
unit_tests += tests/unit/test_scarce
tests_unit_test_scarce_SOURCES = tests/unit/test_scarce.c tests/unit/scarce.c \
	tests/unit/scarce.h $(optable_sources)
tests_unit_test_scarce_LDFLAGS = $(AM_LDFLAGS) $(scarce_wraps)
