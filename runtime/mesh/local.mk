# mesh/: the groups of ranks that a strategy works in
libaccel_core_la_SOURCES += \
	runtime/mesh/mesh_open.c \
	runtime/mesh/mesh_open.h
