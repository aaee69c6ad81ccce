# backend/
libaccel_core_la_SOURCES += \
	runtime/backend/cpu/activation.c \
	runtime/backend/cpu/attention/attention_block.c \
	runtime/backend/cpu/attention/attention_decode.c \
	runtime/backend/cpu/attention/attention_grad.c \
	runtime/backend/cpu/attention/attention_rows.c \
	runtime/backend/cpu/attention/cpu_attention.c \
	runtime/backend/cpu/attention/cpu_attention.h \
	runtime/backend/cpu/conv.c \
	runtime/backend/cpu/conv.h \
	runtime/backend/cpu/cpu.c \
	runtime/backend/cpu/cpu.h \
	runtime/backend/cpu/cpu_norm.c \
	runtime/backend/cpu/cpu_rope.c \
	runtime/backend/cpu/cpu_sizes.c \
	runtime/backend/cpu/elementwise.c \
	runtime/backend/cpu/embed.c \
	runtime/backend/cpu/gemm/bf16_gemv.c \
	runtime/backend/cpu/gemm/epilogue.c \
	runtime/backend/cpu/gemm/f16_gemv.c \
	runtime/backend/cpu/gemm/gemm.c \
	runtime/backend/cpu/gemm/gemm_skinny.c \
	runtime/backend/cpu/gemm/gemv.c \
	runtime/backend/cpu/gemm/gemv_rows.h \
	runtime/backend/cpu/gemm/panels.c \
	runtime/backend/cpu/gemm/panels.h \
	runtime/backend/cpu/gemm/panels_512.h \
	runtime/backend/cpu/gemm/panels_avx2.c \
	runtime/backend/cpu/gemm/panels_avx512.c \
	runtime/backend/cpu/gemm/panels_bf16.c \
	runtime/backend/cpu/gemm/panels_block.h \
	runtime/backend/cpu/gemm/panels_pack.h \
	runtime/backend/cpu/gemm/panels_plain.c \
	runtime/backend/cpu/gemm/panels_stream.h \
	runtime/backend/cpu/gemm/panels_x86.h \
	runtime/backend/cpu/gemm/tile.c \
	runtime/backend/cpu/gemm/tile.h \
	runtime/backend/cpu/load_store.c \
	runtime/backend/cpu/memory.c \
	runtime/backend/cpu/move.c \
	runtime/backend/cpu/pool.c \
	runtime/backend/cpu/quantize.c \
	runtime/backend/cpu/quantize_blocks.c \
	runtime/backend/cpu/update/cpu_masters.c \
	runtime/backend/cpu/update/cpu_moments.c \
	runtime/backend/cpu/update/cpu_reduce.c \
	runtime/backend/cpu/update/cpu_scaled.c \
	runtime/backend/cpu/update/cpu_update.c \
	runtime/backend/cpu/vmath.h \
	runtime/backend/cpu/xent.c \
	runtime/backend/cuda/module.h \
	runtime/backend/cuda_load.c \
	runtime/backend/cuda_load.h \
	runtime/backend/cuda_sizes.c \
	runtime/backend/cuda_sizes.h \
	runtime/backend/device.h \
	runtime/backend/id_place.h \
	runtime/backend/kernels.h \
	runtime/backend/maths.h \
	runtime/backend/meta/meta.c \
	runtime/backend/operands.h \
	runtime/backend/queues.c \
	runtime/backend/sizes.h

unit_tests += tests/unit/test_gemm_key tests/unit/test_products tests/unit/test_steady
malloc_count_sources = tests/unit/malloc_count.c tests/unit/malloc_count.h
tests_unit_test_steady_SOURCES = tests/unit/test_steady.c $(malloc_count_sources)
unit_tests += tests/unit/test_panels tests/unit/test_attention_five \
	tests/unit/test_dnn_graph
gpu_unit_tests += tests/unit/test_dnn

include runtime/backend/cuda/local.mk
