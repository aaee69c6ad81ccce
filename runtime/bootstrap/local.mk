# bootstrap/
libaccel_core_la_SOURCES += runtime/bootstrap/boot.h
