# topology/
libaccel_core_la_SOURCES += \
	runtime/topology/bind.c \
	runtime/topology/clocks.c \
	runtime/topology/cores.c \
	runtime/topology/gpu_map.c \
	runtime/topology/gpus.c \
	runtime/topology/machine.c \
	runtime/topology/machine.h \
	runtime/topology/map.c \
	runtime/topology/nic.c \
	runtime/topology/nvml.c \
	runtime/topology/nvml.h \
	runtime/topology/topo.h \
	runtime/topology/visible.c

unit_tests += tests/unit/test_topo
tests_unit_test_topo_CFLAGS = $(AM_CFLAGS) $(HWLOC_CFLAGS)
tests_unit_test_topo_CPPFLAGS = $(AM_CPPFLAGS) -DDATA_DIR='"$(top_srcdir)/tests/data/topo"'
EXTRA_DIST += tests/data/topo
shell_tests += tests/t/2010-topo-maps.t tests/t/2020-topo-train.t \
	tests/t/2100-topo-cgroup.t tests/t/2110-gpu-refused.t tests/t/2120-cuda-train.t \
	tests/t/2125-gpu-given.t

# libnvidia-ml.so.1 as tests want it: of today, and of long ago. -rpath makes it shared.
check_LTLIBRARIES += tests/helpers/fake_nvml.la tests/helpers/fake_nvml_old.la
fake_nvml_ldflags = -module -avoid-version -shared -rpath /nowhere
tests_helpers_fake_nvml_la_SOURCES = tests/helpers/fake_nvml.c
tests_helpers_fake_nvml_la_LDFLAGS = $(fake_nvml_ldflags)
tests_helpers_fake_nvml_old_la_SOURCES = tests/helpers/fake_nvml.c
tests_helpers_fake_nvml_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_NVML_OLD
tests_helpers_fake_nvml_old_la_LDFLAGS = $(fake_nvml_ldflags)
