# state/: what a checkpoint holds, saved and resumed
libaccel_core_la_SOURCES += \
	runtime/state/average_lines.c \
	runtime/state/load_part.c \
	runtime/state/params.c \
	runtime/state/registered.c \
	runtime/state/resume.c \
	runtime/state/run_boxes.c \
	runtime/state/save.c \
	runtime/state/state.c \
	runtime/state/state.h \
	runtime/state/state_dirs.c \
	runtime/state/state_hooks.c \
	runtime/state/state_text.c
