# track/: a run's numbers, texts and histograms, to files and to the program's sinks
libaccel_core_la_SOURCES += \
	runtime/track/crc32c.c \
	runtime/track/crc32c.h \
	runtime/track/event_bytes.c \
	runtime/track/event_bytes.h \
	runtime/track/histogram.c \
	runtime/track/track.c \
	runtime/track/track.h \
	runtime/track/track_events.c \
	runtime/track/track_items.c \
	runtime/track/track_lines.c

unit_tests += tests/unit/test_track
tests_unit_test_track_SOURCES = tests/unit/test_track.c tests/unit/event_reader.c \
	tests/unit/event_reader.h

# A run that tracks, and its files as others read them.
check_PROGRAMS += tests/helpers/tracker
tests_helpers_tracker_LDADD = libaccel.la
tests_helpers_tracker_LDFLAGS = -no-install
shell_tests += tests/t/5140-track-tensorboard.t
