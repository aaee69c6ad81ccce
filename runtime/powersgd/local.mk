# powersgd/
libaccel_core_la_SOURCES += \
	runtime/powersgd/orthogonal.c \
	runtime/powersgd/powersgd.c \
	runtime/powersgd/powersgd.h \
	runtime/powersgd/powersgd_impl.h \
	runtime/powersgd/powersgd_reduce.c
unit_tests += tests/unit/test_powersgd
gpu_unit_tests += tests/unit/test_cuda_powersgd
check_PROGRAMS += tests/helpers/powersgd_train
tests_helpers_powersgd_train_LDADD = libaccel.la
tests_helpers_powersgd_train_LDFLAGS = -no-install
check_PROGRAMS += tests/helpers/powersgd_peer
shell_tests += tests/t/4222-powersgd-torch.t
