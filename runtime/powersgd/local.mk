# powersgd/
libaccel_core_la_SOURCES += \
	runtime/powersgd/orthogonal.c \
	runtime/powersgd/orthogonal.h \
	runtime/powersgd/powersgd.c \
	runtime/powersgd/powersgd.h \
	runtime/powersgd/powersgd_impl.h \
	runtime/powersgd/powersgd_reduce.c
unit_tests += tests/unit/test_powersgd
tests_unit_test_powersgd_LDADD = libforkworld.la $(unit_ldadd)
gpu_unit_tests += tests/unit/test_cuda_powersgd
tests_unit_test_cuda_powersgd_SOURCES = tests/unit/test_cuda_powersgd.c $(cuda_device_sources)
check_PROGRAMS += tests/helpers/powersgd_train
tests_helpers_powersgd_train_LDADD = libaccel.la
tests_helpers_powersgd_train_LDFLAGS = -no-install
check_PROGRAMS += tests/helpers/powersgd_peer
tests_helpers_powersgd_peer_LDADD = libforkworld.la $(unit_ldadd)
shell_tests += tests/t/4222-powersgd-torch.t
