# optim/
libaccel_core_la_SOURCES += \
	runtime/optim/accumulate.c \
	runtime/optim/accumulate.h \
	runtime/optim/averages.c \
	runtime/optim/averages.h \
	runtime/optim/clip.c \
	runtime/optim/optim.c \
	runtime/optim/optim.h \
	runtime/optim/schedule.c \
	runtime/optim/schedule.h \
	runtime/optim/schedule_advance.c \
	runtime/optim/schedule_state.c
unit_tests += tests/unit/test_optim tests/unit/test_schedule tests/unit/test_accumulate
tests_unit_test_optim_SOURCES = tests/unit/test_optim.c
tests_unit_test_optim_LDADD = $(unit_ldadd)
unit_tests += tests/unit/test_scaled
tests_unit_test_scaled_SOURCES = tests/unit/test_scaled.c
tests_unit_test_scaled_LDADD = $(unit_ldadd)
unit_tests += tests/unit/test_scaled_moments
tests_unit_test_scaled_moments_SOURCES = tests/unit/test_scaled_moments.c
tests_unit_test_scaled_moments_LDADD = $(unit_ldadd)

unit_tests += tests/unit/test_moments
tests_unit_test_moments_SOURCES = tests/unit/test_moments.c
tests_unit_test_moments_LDADD = $(unit_ldadd)
tests_unit_test_schedule_SOURCES = tests/unit/test_schedule.c
tests_unit_test_schedule_LDADD = $(unit_ldadd)
accumulate_rows = tests/unit/accumulate_rows.c tests/unit/accumulate_rows.h
tests_unit_test_accumulate_SOURCES = tests/unit/test_accumulate.c $(accumulate_rows)
tests_unit_test_accumulate_LDADD = $(unit_ldadd)
check_PROGRAMS += tests/bench/bench_update
tests_bench_bench_update_SOURCES = tests/bench/bench_update.c
tests_bench_bench_update_LDADD = $(unit_ldadd)
check_PROGRAMS += tests/helpers/loop_rules
tests_helpers_loop_rules_SOURCES = tests/helpers/loop_rules.c
tests_helpers_loop_rules_LDADD = $(unit_ldadd)
shell_tests += tests/t/4220-loop-accelerate.t
