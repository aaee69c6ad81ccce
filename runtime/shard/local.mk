# shard/
libaccel_core_la_SOURCES += runtime/shard/shard.h
