# topology/
libaccel_core_la_SOURCES += \
	runtime/topology/gpu_map.c \
	runtime/topology/topo.c \
	runtime/topology/topo.h \
	runtime/topology/topo_impl.h

unit_tests += tests/unit/test_topo
tests_unit_test_topo_SOURCES = tests/unit/test_topo.c
tests_unit_test_topo_CFLAGS = $(AM_CFLAGS) $(HWLOC_CFLAGS)
tests_unit_test_topo_CPPFLAGS = $(AM_CPPFLAGS) -DDATA_DIR='"$(top_srcdir)/tests/data/topo"'
tests_unit_test_topo_LDADD = $(unit_ldadd)
EXTRA_DIST += tests/data/topo/numa2-core4-pu2.xml tests/data/topo/flat-core6.xml \
	tests/data/topo/pack2-numa4-core8.xml
