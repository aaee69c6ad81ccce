# state/: what a checkpoint holds, saved and resumed
libaccel_core_la_SOURCES += \
	runtime/state/average_lines.c \
	runtime/state/load_part.c \
	runtime/state/params.c \
	runtime/state/registered.c \
	runtime/state/resume.c \
	runtime/state/run_boxes.c \
	runtime/state/save.c \
	runtime/state/state.c \
	runtime/state/state.h \
	runtime/state/state_dirs.c \
	runtime/state/state_hooks.c \
	runtime/state/state_text.c

# Kills in accel_save_state and accel_load_state: a few in the suite; make check-kill has 200.
check_PROGRAMS += tests/faults/state_kill
tests_faults_state_kill_SOURCES = tests/faults/state_kill.c $(open_world) \
	$(ranks_world)
tests_faults_state_kill_LDADD = $(fork_ldadd)
tests_faults_state_kill_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps)
TESTS += tests/faults/state_kill
