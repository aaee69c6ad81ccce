# examples/: built against the shared library as a user would; run from the tree
# (-no-install: real executables, not libtool scripts).
noinst_PROGRAMS += examples/train examples/minimal
examples_train_SOURCES = examples/train.c
examples_train_LDADD = libaccel.la
examples_train_LDFLAGS = -no-install
examples_minimal_SOURCES = examples/minimal.c
examples_minimal_LDADD = libaccel.la
examples_minimal_LDFLAGS = -no-install
noinst_PROGRAMS += examples/generate
examples_generate_SOURCES = examples/generate.c
examples_generate_LDADD = libaccel.la
examples_generate_LDFLAGS = -no-install
shell_tests += tests/t/4170-generate.t
noinst_PROGRAMS += examples/finetune_bert
examples_finetune_bert_SOURCES = examples/finetune_bert.c examples/wordpiece.c \
	examples/wordpiece.h
examples_finetune_bert_LDADD = libaccel.la
examples_finetune_bert_LDFLAGS = -no-install
noinst_PROGRAMS += examples/cnn examples/mlp
examples_cnn_SOURCES = examples/cnn.c examples/gratings.h
examples_cnn_LDADD = libaccel.la -lm
examples_cnn_LDFLAGS = -no-install
examples_mlp_SOURCES = examples/mlp.c examples/gratings.h
examples_mlp_LDADD = libaccel.la -lm
examples_mlp_LDFLAGS = -no-install
shell_tests += tests/t/4140-train-nets.t
EXTRA_DIST += tests/data/nets.py tests/data/nets.golden
noinst_PROGRAMS += examples/metrics
examples_metrics_SOURCES = examples/metrics.c
examples_metrics_LDADD = libaccel.la -lm
examples_metrics_LDFLAGS = -no-install
shell_tests += tests/t/4145-train-metrics.t
noinst_PROGRAMS += examples/streaming examples/serial_loop examples/custom_loop
examples_streaming_SOURCES = examples/streaming.c
examples_streaming_LDADD = libaccel.la
examples_streaming_LDFLAGS = -no-install
examples_serial_loop_SOURCES = examples/serial_loop.c examples/curve.h
examples_serial_loop_LDADD = -lm
examples_custom_loop_SOURCES = examples/custom_loop.c examples/curve.h
examples_custom_loop_LDADD = libaccel.la -lm
examples_custom_loop_LDFLAGS = -no-install
shell_tests += tests/t/4146-train-loops.t tests/t/5150-train-random.t
check_LTLIBRARIES += tests/faults/stop_at.la
tests_faults_stop_at_la_SOURCES = tests/faults/stop_at.c
tests_faults_stop_at_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_faults_stop_at_la_LDFLAGS = -module -avoid-version -rpath /nowhere
tests_faults_stop_at_la_LIBADD = -ldl
# All examples, at 10 points each, with another seed each time.
RESUMES = 10
check-resume: check-programs
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/t/5150-train-random.t $(RESUMES)
.PHONY: check-resume
noinst_PROGRAMS += examples/gan examples/distill
examples_gan_SOURCES = examples/gan.c examples/points.h
examples_gan_LDADD = libaccel.la
examples_gan_LDFLAGS = -no-install
examples_distill_SOURCES = examples/distill.c examples/points.h
examples_distill_LDADD = libaccel.la
examples_distill_LDFLAGS = -no-install
shell_tests += tests/t/4145-train-objects.t
EXTRA_DIST += tests/data/objects.py
shell_tests += tests/t/4165-train-twins.t
shell_tests += tests/t/4166-train-models.t
EXTRA_DIST += tests/data/twins.py tests/data/twins_models.py
noinst_PROGRAMS += examples/byo
examples_byo_SOURCES = examples/byo.c
examples_byo_LDADD = libaccel.la -lm
examples_byo_LDFLAGS = -no-install
if HAVE_CXX
noinst_PROGRAMS += examples/byo_cpp
examples_byo_cpp_SOURCES = examples/byo.cpp
examples_byo_cpp_CXXFLAGS = -Wall -Wextra -pedantic -std=c++17 $(AM_CXXFLAGS)
examples_byo_cpp_LDADD = libaccel.la
examples_byo_cpp_LDFLAGS = -no-install
endif
nobase_dist_doc_DATA += \
	examples/accelerate_loop.py \
	examples/byo.c \
	examples/byo.cpp \
	examples/cnn.c \
	examples/curve.h \
	examples/custom_loop.c \
	examples/ddp.yaml \
	examples/ddp_loop.py \
	examples/deepspeed.yaml \
	examples/distill.c \
	examples/finetune_bert.c \
	examples/fsdp.yaml \
	examples/fsdp2_loop.py \
	examples/gan.c \
	examples/generate.c \
	examples/gratings.h \
	examples/hf_train.py \
	examples/hf_trainer.py \
	examples/metrics.c \
	examples/minimal.c \
	examples/mlp.c \
	examples/points.h \
	examples/read_checkpoint.py \
	examples/sample.txt \
	examples/serial_loop.c \
	examples/single.yaml \
	examples/streaming.c \
	examples/torch_train.py \
	examples/train.c \
	examples/wordpiece.c \
	examples/wordpiece.h

# A model of parts that the trainer does not use.
check_PROGRAMS += tests/helpers/parts
tests_helpers_parts_LDADD = libaccel.la
tests_helpers_parts_LDFLAGS = -no-install
shell_tests += tests/t/4110-train-parts.t

# The same network by hand and as modules.
check_PROGRAMS += tests/helpers/byo_modules
tests_helpers_byo_modules_LDADD = libaccel.la -lm
tests_helpers_byo_modules_LDFLAGS = -no-install
shell_tests += tests/t/4120-train-byo.t tests/t/4130-train-precision.t tests/t/4131-train-fp16.t tests/t/4132-train-moments.t \
	tests/t/4133-train-masters.t

shell_tests += tests/t/4100-train-equal.t tests/t/4105-train-hybrid.t \
	tests/t/4200-train-errors.t \
	tests/t/5100-train-reshard.t tests/t/5110-train-minutes.t \
	tests/t/6100-train-preempt.t tests/t/7100-train-sanitizer.t
EXTRA_DIST += tests/bench/memory.sh doc/architecture.md

shell_tests += tests/t/4150-train-bert.t tests/t/4160-train-torch.t
