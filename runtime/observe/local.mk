# observe/: progress line, JSONL, memory
libaccel_core_la_SOURCES += \
	runtime/observe/jsonl.c \
	runtime/observe/memory.c \
	runtime/observe/observe.h

unit_tests += tests/unit/test_observe
tests_unit_test_observe_SOURCES = tests/unit/test_observe.c
tests_unit_test_observe_LDADD = $(unit_ldadd)
