# config/
libaconfig_la_SOURCES += runtime/config/config.h
