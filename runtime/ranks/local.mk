# ranks/: what ranks tell each other for the program
libaccel_core_la_SOURCES += \
	runtime/ranks/agreement.c \
	runtime/ranks/broadcasts.c \
	runtime/ranks/collective_entry.c \
	runtime/ranks/compare.c \
	runtime/ranks/gathers.c \
	runtime/ranks/padding.c \
	runtime/ranks/pieces.c \
	runtime/ranks/ranks_impl.h \
	runtime/ranks/reductions.c \
	runtime/ranks/rules.c

unit_tests += tests/unit/test_ranks_rules tests/unit/test_ranks \
	tests/unit/test_ranks_metrics
tests_unit_test_ranks_metrics_CFLAGS = $(AM_CFLAGS) \
	-DDATA='"$(abs_top_srcdir)/tests/data/ranks"'
unit_tests += tests/unit/test_ranks_agree
EXTRA_DIST += tests/data/ranks
check_PROGRAMS += tests/helpers/ranks_rows
shell_tests += tests/t/4147-ranks-accelerate.t
check_PROGRAMS += tests/bench/bench_ranks
gpu_unit_tests += tests/unit/test_ranks_device
tests_unit_test_ranks_device_CPPFLAGS = $(AM_CPPFLAGS) \
	-DCUDA_STANDIN='"$(abs_top_builddir)/tests/cuda/accel_cuda.so"' \
	-DNCCL_STANDIN='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl.so"'
