# tests/cuda/: a stand-in CUDA toolkit. The sources of the CUDA module compile with its headers
# and the C++ compiler, and run on the CPU; fakecuda_cxxflags are what such sources need. A
# library of its own: the module and a stand-in libnccl share its streams.
fakecuda_cppflags = -I$(top_srcdir)/tests/cuda/include
fakecuda_cxxflags = -std=gnu++17 -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi -ffp-contract=off \
	-fvisibility=hidden
if HAVE_CXX
check_LTLIBRARIES += tests/cuda/libfakecuda.la
endif
# They leave arrays on purpose, which ends a program of a sanitizer build.
if !SANITIZER
if HAVE_CXX
unit_tests += tests/unit/test_emulator tests/unit/test_emulator_blas \
	tests/unit/test_emulator_machine tests/unit/test_emulator_ptx \
	tests/unit/test_emulator_sm90 \
	tests/unit/test_emulator_streams tests/unit/test_fragments
endif
endif
tests_cuda_libfakecuda_la_SOURCES = \
	tests/cuda/fake_async.cc \
	tests/cuda/fake_barrier.cc \
	tests/cuda/fake_blaslt.cc \
	tests/cuda/fake_blaslt.h \
	tests/cuda/fake_block.cc \
	tests/cuda/fake_bulk.cc \
	tests/cuda/fake_copy.cc \
	tests/cuda/fake_descriptors.cc \
	tests/cuda/fake_device.cc \
	tests/cuda/fake_event.cc \
	tests/cuda/fake_fiber.cc \
	tests/cuda/fake_fiber.h \
	tests/cuda/fake_graph.cc \
	tests/cuda/fake_launch.cc \
	tests/cuda/fake_layout.h \
	tests/cuda/fake_matmul.cc \
	tests/cuda/fake_memory.cc \
	tests/cuda/fake_mma.cc \
	tests/cuda/fake_pool.cc \
	tests/cuda/fake_profile.cc \
	tests/cuda/fake_properties.cc \
	tests/cuda/fake_ptx.cc \
	tests/cuda/fake_ptx.h \
	tests/cuda/fake_queue.cc \
	tests/cuda/fake_stream.cc \
	tests/cuda/fake_virtual.cc \
	tests/cuda/fake_watch.cc \
	tests/cuda/fake_wgmma.cc \
	tests/cuda/fakecuda.h \
	tests/cuda/include/cublasLt.h \
	tests/cuda/include/cuda.h \
	tests/cuda/include/cuda_runtime.h \
	tests/cuda/include/cuda_runtime_api.h \
	tests/cuda/include/fakecuda_device.h \
	tests/cuda/include/fakecuda_maths.h \
	tests/cuda/include/fakecuda_ptx.h \
	tests/cuda/include/fakecuda_types.h \
	tests/cuda/include/fakecuda_vectors.h \
	tests/cuda/include/nvtx3/nvToolsExt.h
tests_cuda_libfakecuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
tests_cuda_libfakecuda_la_CXXFLAGS = $(fakecuda_cxxflags) $(AM_CXXFLAGS)
tests_cuda_libfakecuda_la_LDFLAGS = -avoid-version -shared -rpath /nowhere
EXTRA_DIST += tests/cuda/README.md

# Its own tests: C++ as well.
emulator_cppflags = $(AM_CPPFLAGS) $(fakecuda_cppflags)
emulator_cxxflags = $(fakecuda_cxxflags) $(AM_CXXFLAGS)
emulator_ldadd = libtap.la tests/cuda/libfakecuda.la
tests_unit_test_emulator_SOURCES = tests/unit/test_emulator.cc tests/unit/emulator.h
tests_unit_test_emulator_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_LDFLAGS = -no-install
tests_unit_test_emulator_blas_SOURCES = tests/unit/test_emulator_blas.cc tests/unit/emulator.h
tests_unit_test_emulator_blas_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_blas_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_blas_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_blas_LDFLAGS = -no-install
tests_unit_test_emulator_machine_SOURCES = tests/unit/test_emulator_machine.cc \
	tests/unit/emulator.h
tests_unit_test_emulator_machine_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_machine_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_machine_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_machine_LDFLAGS = -no-install
tests_unit_test_emulator_ptx_SOURCES = tests/unit/test_emulator_ptx.cc tests/unit/emulator.h
tests_unit_test_emulator_ptx_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_ptx_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_ptx_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_ptx_LDFLAGS = -no-install
tests_unit_test_emulator_sm90_SOURCES = tests/unit/test_emulator_sm90.cc tests/unit/emulator.h
tests_unit_test_emulator_sm90_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_sm90_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_sm90_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_sm90_LDFLAGS = -no-install
tests_unit_test_emulator_streams_SOURCES = tests/unit/test_emulator_streams.cc \
	tests/unit/emulator.h
tests_unit_test_emulator_streams_CPPFLAGS = $(emulator_cppflags)
tests_unit_test_emulator_streams_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_emulator_streams_LDADD = $(emulator_ldadd)
tests_unit_test_emulator_streams_LDFLAGS = -no-install
# The device code of the attention, block by block, without the module.
tests_unit_test_fragments_SOURCES = tests/unit/test_fragments.cc tests/unit/emulator.h
tests_unit_test_fragments_CPPFLAGS = $(emulator_cppflags) $(RANDOM123_CFLAGS)
tests_unit_test_fragments_CXXFLAGS = $(emulator_cxxflags)
tests_unit_test_fragments_LDADD = $(emulator_ldadd)
tests_unit_test_fragments_LDFLAGS = -no-install
