# weights/: other people's formats, in and out
libaccel_core_la_SOURCES += \
	runtime/weights/export.c \
	runtime/weights/gather_part.c \
	runtime/weights/load.c \
	runtime/weights/weights.h
