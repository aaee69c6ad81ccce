# text/: generation
libaccel_core_la_SOURCES += \
	runtime/text/draw_token.c \
	runtime/text/generation.c
