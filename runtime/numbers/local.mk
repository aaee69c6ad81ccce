# numbers/: number formats and rounding, for the host and for devices
libacommon_la_SOURCES += \
	runtime/numbers/bf16.c \
	runtime/numbers/bf16.h \
	runtime/numbers/block_formats.c \
	runtime/numbers/block_formats.h \
	runtime/numbers/element.c \
	runtime/numbers/element.h \
	runtime/numbers/f16.c \
	runtime/numbers/f16.h \
	runtime/numbers/floats.c \
	runtime/numbers/floats.h \
	runtime/numbers/minifloat.h \
	runtime/numbers/masters.h \
	runtime/numbers/moments.h \
	runtime/numbers/rng.h \
	runtime/numbers/scaled.h \
	runtime/numbers/wire.h
libaccel_core_la_SOURCES += runtime/numbers/fp8_blocks.h
