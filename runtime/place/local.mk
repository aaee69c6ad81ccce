# place/: which GPU, cores and interface each rank uses
libaccel_core_la_SOURCES += \
	runtime/place/place.c \
	runtime/place/place.h \
	runtime/place/place_choose.c \
	runtime/place/place_print.c \
	runtime/place/throttle.c
