# backend/cuda/: the CUDA module, accel_cuda.so. nvcc builds it for $(pkglibdir); make check
# builds the same sources by the C++ compiler against the stand-in toolkit of tests/cuda.
# A new file is one line here.
cuda_sources = \
	runtime/backend/cuda/activation.cu \
	runtime/backend/cuda/attention/attention.cu \
	runtime/backend/cuda/attention/attention_backward.cu \
	runtime/backend/cuda/attention/attention_decode.cu \
	runtime/backend/cuda/attention/attention_dnn.cu \
	runtime/backend/cuda/attention/attention_forward.cu \
	runtime/backend/cuda/attention/attention_mma_backward.cu \
	runtime/backend/cuda/attention/attention_mma_dq.cu \
	runtime/backend/cuda/attention/attention_mma_forward.cu \
	runtime/backend/cuda/attention/attention_wgmma_backward.cu \
	runtime/backend/cuda/attention/attention_wgmma_dq.cu \
	runtime/backend/cuda/attention/attention_wgmma_forward.cu \
	runtime/backend/cuda/attention/attention_wgmma_map.cu \
	runtime/backend/cuda/columns.cu \
	runtime/backend/cuda/conv.cu \
	runtime/backend/cuda/device/copies.cu \
	runtime/backend/cuda/device/core.cu \
	runtime/backend/cuda/elementwise.cu \
	runtime/backend/cuda/embed.cu \
	runtime/backend/cuda/embed_grad.cu \
	runtime/backend/cuda/device/failures.cu \
	runtime/backend/cuda/gemm/gemm.cu \
	runtime/backend/cuda/gemm/gemm_finish.cu \
	runtime/backend/cuda/gemm/gemm_fp8.cu \
	runtime/backend/cuda/gemm/gemm_lt.cu \
	runtime/backend/cuda/gemm/gemm_product.cu \
	runtime/backend/cuda/gemm/gemm_tune.cu \
	runtime/backend/cuda/device/graph.cu \
	runtime/backend/cuda/update/lanes.cu \
	runtime/backend/cuda/device/marks.cu \
	runtime/backend/cuda/maxpool.cu \
	runtime/backend/cuda/device/memory.cu \
	runtime/backend/cuda/move.cu \
	runtime/backend/cuda/norm.cu \
	runtime/backend/cuda/device/out_of_memory.cu \
	runtime/backend/cuda/device/profile.cu \
	runtime/backend/cuda/quantize.cu \
	runtime/backend/cuda/quantize_blocks.cu \
	runtime/backend/cuda/device/queues.cu \
	runtime/backend/cuda/device/ranges.cu \
	runtime/backend/cuda/rope.cu \
	runtime/backend/cuda/device/scratch.cu \
	runtime/backend/cuda/softmax.cu \
	runtime/backend/cuda/update/sum_ends.cu \
	runtime/backend/cuda/update/sums.cu \
	runtime/backend/cuda/update/sumsq.cu \
	runtime/backend/cuda/device/table.cu \
	runtime/backend/cuda/update/update.cu \
	runtime/backend/cuda/update/update_lanes.cu \
	runtime/backend/cuda/device/waits.cu \
	runtime/backend/cuda/update/wire.cu \
	runtime/backend/cuda/xent.cu
cuda_headers = \
	runtime/backend/cuda/attention/cuda_attention.h \
	runtime/backend/cuda/attention/attention_dnn.h \
	runtime/backend/cuda/attention/attention_five.h \
	runtime/backend/cuda/attention/attention_kept.h \
	runtime/backend/cuda/attention/attention_mma.h \
	runtime/backend/cuda/attention/attention_parts.h \
	runtime/backend/cuda/attention/attention_path.h \
	runtime/backend/cuda/attention/attention_plans.h \
	runtime/backend/cuda/attention/attention_rows.h \
	runtime/backend/cuda/attention/attention_wgmma.h \
	runtime/backend/cuda/attention/attention_wgmma_grad.h \
	runtime/backend/cuda/columns.h \
	runtime/backend/cuda/cuda.h \
	runtime/backend/cuda/dnn.h \
	runtime/backend/cuda/dnn_plan.h \
	runtime/backend/cuda/entries.h \
	runtime/backend/cuda/gemm/gemm.h \
	runtime/backend/cuda/gemm/gemm_key.h \
	runtime/backend/cuda/gemm/gemm_lt.h \
	runtime/backend/cuda/kernel_base.h \
	runtime/backend/cuda/update/lanes.h \
	runtime/backend/cuda/update/master_places.h \
	runtime/backend/cuda/module.h \
	runtime/backend/cuda/narrow.h \
	runtime/backend/cuda/ptx.h \
	runtime/backend/cuda/ptx_sm90.h \
	runtime/backend/cuda/rows.h \
	runtime/backend/cuda/update/sums.h \
	runtime/backend/cuda/update/update_list.h \
	runtime/backend/cuda/vector.h
EXTRA_DIST += $(cuda_sources) $(cuda_headers) runtime/backend/cuda/accel_cuda.map
# Whatever any of them may include: one change rebuilds all.
cuda_needs = $(cuda_headers) runtime/backend/device.h runtime/backend/kernels.h \
	runtime/backend/id_place.h \
	runtime/backend/operands.h runtime/backend/sizes.h runtime/backend/maths.h \
	runtime/numbers/moments.h runtime/backend/cuda_sizes.h \
	runtime/numbers/bf16.h runtime/common/common.h runtime/numbers/rng.h $(public_headers)
# Not $(DEFS): its switches for libc headers clash with those of the toolkit.
cuda_cppflags = $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(RANDOM123_CFLAGS)

cuda_link = -shared -Wl,--version-script=$(top_srcdir)/runtime/backend/cuda/accel_cuda.map \
	-Wl,--no-undefined -Wl,--as-needed $(ACCEL_LDFLAGS) $(LDFLAGS)

if HAVE_CUDA
cuda_objects = $(cuda_sources:.cu=.o)
cudamoduledir = $(pkglibdir)
cudamodule_SCRIPTS = runtime/backend/cuda/accel_cuda.so
CLEANFILES += $(cuda_objects) runtime/backend/cuda/accel_cuda.so $(cuda_built_with)
# Written when the options are others than before: after configure for another GPU, as messages
# and make gpu-trial advise, all objects are built again.
cuda_built_with = runtime/backend/cuda/built-with.log
$(cuda_built_with): cuda-options
	@$(MKDIR_P) $(@D); options='$(NVCC) $(CUDA_NVCCFLAGS) $(NVCCFLAGS)'; \
	echo "$$options" | cmp -s - $@ || echo "$$options" >$@
$(cuda_objects): %.o: %.cu $(cuda_needs) $(cuda_built_with)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(NVCC) $(CUDA_NVCCFLAGS) $(NVCCFLAGS) \
	    $(cuda_cppflags) $(CUDA_CFLAGS) -c -o $@ $<
runtime/backend/cuda/accel_cuda.so: $(cuda_objects) libacommon.la \
		runtime/backend/cuda/accel_cuda.map
	$(AM_V_GEN)$(CXX) $(cuda_link) -o $@ $(cuda_objects) .libs/libacommon.a \
	    $(CUDA_MODULE_LIBS) -lm -ldl -lpthread -lrt
# What ptxas says of SOURCE for sm_90a, whatever this build is for: for a test.
cuda-report:
	@$(NVCC) -std=c++17 -O3 $(NVCCFLAGS) -gencode arch=compute_90a,code=sm_90a \
	    -DACCEL_CUDA_SM90A $(cuda_cppflags) $(CUDA_CFLAGS) -Xptxas -v -cubin \
	    -o '$(CUBIN)' '$(SOURCE)'
endif
shell_tests += tests/t/2165-gpu-wgmma.t
.PHONY: cuda-options cuda-report

# An access that is not aligned fails on a GPU; here it ends the process (SIGILL).
cuda_alignment = -fsanitize=alignment -fsanitize-undefined-trap-on-error
if SANITIZER
# Kernels that leave their arrays are what is looked for. The checks for undefined behaviour
# would double the time to compile, for arithmetic that the CPU's copy of it is checked for.
cuda_emulated_cxxflags = -O1 -g1 -fno-sanitize=undefined $(cuda_alignment)
else
# What a kernel costs there is switches between its threads: -O2 takes longer to compile than
# all tests of it save.
cuda_emulated_cxxflags = -O1 -g1 $(cuda_alignment)
endif
if HAVE_CXX
cuda_emulated = $(patsubst runtime/backend/cuda/%.cu,tests/cuda/module/%.o,$(cuda_sources))
check_SCRIPTS += tests/cuda/accel_cuda.so
CLEANFILES += $(cuda_emulated) tests/cuda/accel_cuda.so
$(cuda_emulated): tests/cuda/module/%.o: runtime/backend/cuda/%.cu $(cuda_needs) \
		$(filter tests/cuda/include/%,$(tests_cuda_libfakecuda_la_SOURCES))
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(CXX) -x c++ $(fakecuda_cxxflags) -fPIC $(filter -Werror,$(ACCEL_CFLAGS)) \
	    $(fakecuda_cppflags) $(cuda_cppflags) $(AM_CXXFLAGS) $(CXXFLAGS) \
	    $(cuda_emulated_cxxflags) -c -o $@ $<
tests/cuda/accel_cuda.so: $(cuda_emulated) tests/cuda/libfakecuda.la libacommon.la \
		runtime/backend/cuda/accel_cuda.map
	$(AM_V_GEN)$(CXX) $(AM_CXXFLAGS) $(cuda_link) -o $@ $(cuda_emulated) .libs/libacommon.a \
	    tests/cuda/.libs/libfakecuda.so -Wl,-rpath,$(abs_builddir)/tests/cuda/.libs \
	    -lm -ldl -lpthread

# A module whose library is not there.
check_SCRIPTS += tests/cuda/gone_module.so
CLEANFILES += tests/cuda/gone_module.so
tests/cuda/gone_module.so: runtime/backend/cuda/local.mk
	$(AM_V_GEN)$(MKDIR_P) tests/cuda/gone && \
	    echo 'int gone(void) { return 1; }' >tests/cuda/gone/gone.c && \
	    echo 'int gone(void); int accel_cuda_module(void) { return gone(); }' \
	        >tests/cuda/gone/module.c && \
	    $(CC) -shared -fPIC -Wl,-soname,libcublasLt.so.99 -o tests/cuda/gone/gone.so \
	        tests/cuda/gone/gone.c && \
	    $(CC) -shared -fPIC -o $@ tests/cuda/gone/module.c tests/cuda/gone/gone.so && \
	    rm -r tests/cuda/gone
endif

check_LTLIBRARIES += tests/helpers/odd_cuda_module.la
tests_helpers_odd_cuda_module_la_SOURCES = tests/helpers/odd_cuda_module.c
tests_helpers_odd_cuda_module_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
unit_tests += tests/unit/test_cuda_load

# On a device, or on the stand-in: the core, the kernels beside those of the CPU, the op table.
# None of them links the stand-in: make check-gpu runs them with the module for GPUs.
cuda_rig_sources = tests/unit/cuda_rig.c tests/unit/cuda_rig.h
# These need $(fakecuda_cppflags).
cuda_counts_sources = tests/unit/cuda_counts.c tests/unit/cuda_counts.h
unit_tests += tests/unit/test_cuda_waits
tests_unit_test_cuda_waits_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
gpu_unit_tests += tests/unit/test_cuda_core tests/unit/test_cuda_graph \
	tests/unit/test_cuda_launches tests/unit/test_cuda_segments \
	tests/unit/test_cuda_kernels tests/unit/test_cuda_optable tests/unit/test_cuda_products \
	tests/unit/test_cuda_conv tests/unit/test_cuda_attention \
	tests/unit/test_attention_kept tests/unit/test_cuda_scratch \
	tests/unit/test_narrow_results \
	tests/unit/test_cuda_head tests/unit/test_cuda_fp8_products
tests_unit_test_cuda_conv_SOURCES = tests/unit/test_cuda_conv.c $(cuda_rig_sources)
tests_unit_test_cuda_graph_SOURCES = tests/unit/test_cuda_graph.c $(cuda_rig_sources) \
	$(cuda_counts_sources)
tests_unit_test_cuda_graph_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
tests_unit_test_cuda_launches_SOURCES = tests/unit/test_cuda_launches.c $(cuda_counts_sources)
tests_unit_test_cuda_launches_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
tests_unit_test_cuda_segments_SOURCES = tests/unit/test_cuda_segments.c $(cuda_counts_sources)
tests_unit_test_cuda_segments_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
tests_unit_test_cuda_products_SOURCES = tests/unit/test_cuda_products.c $(cuda_rig_sources)
tests_unit_test_cuda_fp8_products_SOURCES = tests/unit/test_cuda_fp8_products.c \
	$(cuda_rig_sources) $(cuda_counts_sources)
tests_unit_test_cuda_fp8_products_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
tests_unit_test_cuda_kernels_SOURCES = tests/unit/test_cuda_kernels.c tests/unit/twin.c \
	tests/unit/twin.h tests/unit/twin_elements.c tests/unit/twin_moves.c \
	tests/unit/twin_rows.c tests/unit/twin_scaled.c tests/unit/twin_sums.c \
	tests/unit/twin_updates.c
tests_unit_test_cuda_optable_SOURCES = tests/unit/test_cuda_optable.c $(optable_sources)
