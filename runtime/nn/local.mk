# nn/
libaccel_core_la_SOURCES += runtime/nn/nn.h
