# optim/
libaccel_core_la_SOURCES += \
	runtime/optim/accumulate.c \
	runtime/optim/accumulate.h \
	runtime/optim/averages.c \
	runtime/optim/averages.h \
	runtime/optim/optim.c \
	runtime/optim/optim.h \
	runtime/optim/schedule.c \
	runtime/optim/schedule.h \
	runtime/optim/schedule_state.c
unit_tests += tests/unit/test_optim tests/unit/test_schedule tests/unit/test_accumulate \
	tests/unit/test_scaled tests/unit/test_scaled_moments

unit_tests += tests/unit/test_moments
accumulate_rows = tests/unit/accumulate_rows.c tests/unit/accumulate_rows.h
tests_unit_test_accumulate_SOURCES = tests/unit/test_accumulate.c $(accumulate_rows)
check_PROGRAMS += tests/bench/bench_update tests/helpers/loop_rules
shell_tests += tests/t/4220-loop-accelerate.t
