# observe/: progress line, JSONL, memory
libaccel_core_la_SOURCES += \
	runtime/observe/lines.c \
	runtime/observe/lines.h \
	runtime/observe/lines_trim.c \
	runtime/observe/memory_left.c \
	runtime/observe/observe.h \
	runtime/observe/process_memory.c \
	runtime/observe/step_record.c

unit_tests += tests/unit/test_memory_left tests/unit/test_observe tests/unit/test_lines
