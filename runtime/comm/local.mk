# comm/
libaccel_core_la_SOURCES += runtime/comm/comm.h
