# topology/
libaccel_core_la_SOURCES += runtime/topology/topo.h
