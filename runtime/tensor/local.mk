# tensor/
libaccel_core_la_SOURCES += runtime/tensor/graph.h
