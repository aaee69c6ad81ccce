# state/: what a checkpoint holds, saved and resumed
libaccel_core_la_SOURCES += \
	runtime/state/resume.c \
	runtime/state/run_boxes.c \
	runtime/state/save.c \
	runtime/state/state.c \
	runtime/state/state.h
