# tensor/
libaccel_core_la_SOURCES += \
	runtime/tensor/arena.c \
	runtime/tensor/graph.c \
	runtime/tensor/graph.h \
	runtime/tensor/tape.h
