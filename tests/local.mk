# Tests: C unit tests (tests/unit), shell tests (tests/t) with one library; TAP throughout.
noinst_LTLIBRARIES += libtap.la
libtap_la_SOURCES = tests/tap.c tests/tap.h

# Worlds: ranks, folders, runs and models that tests share. Their calls are wrapped in programs that
# name them below, or wrap them beside others.
noinst_LTLIBRARIES += libworld.la
libworld_la_SOURCES = tests/world/ckpt_world.c tests/world/ckpt_world.h \
	tests/world/config_files.c tests/world/config_files.h tests/world/cuda_device.c \
	tests/world/cuda_device.h tests/world/cuda_run.c tests/world/cuda_run.h \
	tests/world/fork_world.c tests/world/fork_world.h tests/world/held_run.c \
	tests/world/held_run.h tests/world/loader_world.c tests/world/loader_world.h \
	tests/world/model_run.c tests/world/model_run.h tests/world/module_rig.c \
	tests/world/module_rig.h tests/world/number_run.c tests/world/number_run.h \
	tests/world/op_rig.c tests/world/op_rig.h tests/world/open_world.c \
	tests/world/open_world.h tests/world/ranks_world.c tests/world/ranks_world.h \
	tests/world/resident.c tests/world/resident.h tests/world/run_folder.c \
	tests/world/run_folder.h tests/world/run_net.c tests/world/run_net.h \
	tests/world/run_tokens.c tests/world/run_tokens.h tests/world/shard_world.c \
	tests/world/shard_world.h tests/world/staging_world.c tests/world/staging_world.h
weights_data = -DDATA='"$(abs_top_srcdir)/tests/data/weights"'
libworld_la_CPPFLAGS = $(AM_CPPFLAGS) $(weights_data)
open_world_wraps = -Wl,--wrap=boot_open -Wl,--wrap=boot_leave -Wl,--wrap=boot_free
open_world_tests = tests/bench/bench_saves tests/faults/save_calls tests/faults/save_kill \
	tests/faults/save_steady tests/faults/state_kill tests/fuzz/fuzz_calls \
	tests/unit/test_averages tests/unit/test_damaged_forms tests/unit/test_first_lines \
	tests/unit/test_fp16_run tests/unit/test_groups tests/unit/test_large_masters \
	tests/unit/test_level_memory tests/unit/test_loader_lives tests/unit/test_loader_train \
	tests/unit/test_local_sgd tests/unit/test_model_weights tests/unit/test_moments_run \
	tests/unit/test_narrow_refused tests/unit/test_next tests/unit/test_objects \
	tests/unit/test_one_fails tests/unit/test_sample_wait tests/unit/test_schedules \
	tests/unit/test_second_optim tests/unit/test_settings
$(open_world_tests): private AM_LDFLAGS += $(open_world_wraps)
shard_world_tests = tests/unit/test_cuda_objects tests/unit/test_narrow_copies \
	tests/unit/test_narrow_gradients tests/unit/test_narrow_means tests/unit/test_queues \
	tests/unit/test_shard tests/unit/test_shard_costs tests/unit/test_shard_limits
$(shard_world_tests): private AM_LDFLAGS += -Wl,--wrap=comm_all_gather \
	-Wl,--wrap=comm_reduce_scatter -Wl,--wrap=comm_all_reduce

unit_tests += tests/unit/test_common tests/unit/test_repeat_list tests/unit/test_sized \
	tests/unit/test_common_paths tests/unit/test_floats tests/unit/test_wire \
	tests/unit/test_block_bytes

shell_tests += tests/t/0010-build-dist.t tests/t/0020-build-module.t \
	tests/t/0015-build-bare.t tests/t/0030-build-install.t tests/t/0040-build-scripts.t tests/t/0050-build-arrows.t \
	tests/t/0055-build-circles.t \
	tests/t/0060-build-style.t tests/t/0065-build-names.t tests/t/0070-build-symbols.t \
	tests/t/0075-build-abi.t tests/t/0085-tap-ends.t tests/t/0090-build-families.t
EXTRA_DIST += tests/data/abi
# Installing links libaccel once more and moves it for a moment: after all other tests.
tests/t/0030-build-install.log: $(filter-out tests/t/0030-build-install.log, $(TEST_LOGS))

# One script per mended defect.
shell_tests += \
	tests/issues/0100-errors-anywhere.t \
	tests/issues/0101-resume-readable.t \
	tests/issues/0120-ckpt-verify.t \
	tests/issues/0140-log-disk.t \
	tests/issues/0141-lease-lock.t \
	tests/issues/0142-interrupt.t \
	tests/issues/0143-srun-interrupt.t \
	tests/issues/0144-slow-exit.t \
	tests/issues/0160-warning-harms-nobody.t \
	tests/issues/0161-requeue-exit.t \
	tests/issues/0180-config-user-file.t \
	tests/issues/0181-config-hints.t \
	tests/issues/0200-git-clean.t \
	tests/issues/0201-near-names.t \
	tests/issues/0202-cuda-arch.t \
	tests/issues/0220-format-second-reader.t \
	tests/issues/0221-format-refused.t \
	tests/issues/0222-full-disk-exit.t \
	tests/issues/0340-staged-kept.t \
	tests/issues/0344-odd-files.t \
	tests/issues/0345-lock-of-a-tool.t \
	tests/issues/0350-array-requeue.t \
	tests/issues/0351-stop-says-once.t \
	tests/issues/0352-launch-forms.t \
	tests/issues/0353-srun-ends.t \
	tests/issues/0354-python-recipe.t \
	tests/issues/0369-tokenizer-directory.t \
	tests/issues/0370-merged-model.t \
	tests/issues/0371-lfs-pointer.t

include tests/cuda/local.mk
include tests/fuzz/local.mk
include tests/bench/local.mk

unit_tests += $(gpu_unit_tests)
check_PROGRAMS += $(unit_tests)
# `private`: not for what they are made of.
$(check_PROGRAMS): private LIBTOOL = $(SHELL) $(top_srcdir)/tests/link $(top_builddir)/libtool
EXTRA_DIST += tests/link
TESTS += $(unit_tests) $(shell_tests)

# The module for GPUs beside the CPU, on this machine's GPU, with prove; without one all of it
# is skipped. CHECK_GPU_MODULE=tests/cuda/accel_cuda.so runs it on the stand-in, in short.
gpu_module = runtime/backend/cuda/accel_cuda.so
if HAVE_CUDA
CHECK_GPU_MODULE = $(gpu_module)
else
CHECK_GPU_MODULE =
endif
gpu_shell_tests = tests/t/2130-gpu-train.t tests/t/2135-gpu-steps.t \
	tests/t/2140-gpu-sanitizer.t tests/t/2150-gpu-memory.t tests/t/2155-gpu-saves.t
CHECK_GPU_TESTS = $(gpu_unit_tests) $(gpu_shell_tests:%=$(srcdir)/%)
shell_tests += $(gpu_shell_tests)
check-gpu: $(CHECK_GPU_MODULE) $(gpu_unit_tests) accel$(EXEEXT) examples/train$(EXEEXT) \
		tests/helpers/fake_nvml.la tests/cuda/fake_nccl.la
	@env ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' \
	    ACCEL_CUDA_MODULE='$(abs_top_builddir)/$(or $(CHECK_GPU_MODULE),$(gpu_module))' \
	    prove --exec '' --timer --directives $(CHECK_GPU_TESTS); rc=$$?; \
	echo "the machine:"; ./accel$(EXEEXT) topo | grep -E '^(driver|gpu [0-9]|no_gpus)'; exit $$rc
.PHONY: check-gpu
EXTRA_DIST += doc/gpu.md
include tests/gpu/local.mk
include tests/preempt/local.mk
shell_tests += tests/t/1100-messages-rules.t tests/t/1105-messages-shown.t \
	tests/t/1115-exit-codes.t tests/t/1120-named-things.t

# The long form of tests/issues/0100: 300 errors, the same ones every time.
check-errors: accel$(EXEEXT) examples/train$(EXEEXT) tests/faults/failcall.la
	env ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' \
	    ERRORS_RUNS=$(or $(ERRORS_RUNS),300) ERRORS_SEED=$(or $(ERRORS_SEED),1) \
	    prove --exec '' -v $(srcdir)/tests/issues/0100-errors-anywhere.t
.PHONY: check-errors
# The long form of test_agreements: one of two ranks fails at every place, not at the first and
# the last between two collectives.
check-agreements: tests/unit/test_agreements
	prove --exec '' -v tests/unit/test_agreements :: --all
.PHONY: check-agreements
EXTRA_DIST += tests/t/message-form.awk tests/t/message-sites.awk tests/t/messages-sums.sh tests/t/written-files.awk tests/data/messages

# After a change of messages: shows what is new, for review, and confirms it.
update-golden: accel$(EXEEXT) cli/man/stamp examples/train$(EXEEXT) tests/helpers/fake_nvml.la
	@dir=$$(mktemp -d) && env UPDATE_GOLDEN=1 $(srcdir)/tests/t/messages-sums.sh \
	    $(abs_top_srcdir) $(abs_top_builddir)/accel$(EXEEXT) $$dir; rc=$$?; \
	rm -rf "$$dir"; exit $$rc
	-env ACCEL_SRC=$(abs_top_srcdir) ACCEL_BUILD=$(abs_top_builddir) UPDATE_GOLDEN=1 \
	    $(srcdir)/tests/t/1105-messages-shown.t >/dev/null
	-env ACCEL_SRC=$(abs_top_srcdir) ACCEL_BUILD=$(abs_top_builddir) UPDATE_GOLDEN=1 \
	    $(srcdir)/tests/t/1125-sessions.t >/dev/null
.PHONY: update-golden

EXTRA_DIST += $(shell_tests) tests/t/gpu.sh tests/t/tap.sh tests/t/lib.sh tests/t/second_reader.sh tests/t/stops.sh tests/t/torch.sh tests/t/train.sh \
	tests/one-test tests/sanitizer.sh tests/t/alike_objects.pl tests/t/sanitized.sh tests/data/lsan.supp
shell_tests += tests/t/7110-cli-sanitizer.t tests/t/7120-plugin-sanitizer.t
TEST_EXTENSIONS = .t
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
T_LOG_DRIVER = $(LOG_DRIVER)
AM_TESTS_ENVIRONMENT = \
	ACCEL_SRC='$(abs_top_srcdir)'; export ACCEL_SRC; \
	ACCEL_BUILD='$(abs_top_builddir)'; export ACCEL_BUILD; \
	. '$(abs_top_srcdir)/tests/sanitizer.sh';

# What the tests of a sanitizer build run, but for the unit tests; scripts/test --all makes it there.
sanitizer_programs = accel$(EXEEXT) schema/accel.schema.json accel-selftest$(EXEEXT) \
	accel-verify$(EXEEXT) \
	examples/train$(EXEEXT) tests/helpers/fake_nvml.la tests/helpers/fake_nvml_old.la \
	tests/cuda/fake_nccl.la tests/cuda/fake_nccl_incomplete.la
if HAVE_CXX
sanitizer_programs += tests/cuda/accel_cuda.so
endif
if HAVE_SLURM
sanitizer_programs += $(pkglib_LTLIBRARIES) tests/helpers/fake_spank$(EXEEXT)
endif
sanitizer-programs: $(sanitizer_programs)
.PHONY: sanitizer-programs

# Races between threads of our own, in a build by clang. OpenMP has one thread: what watches its
# barriers (libarcher) does not survive the fork of a rank. test_loader_steady is not among them:
# it counts calls of malloc, which ThreadSanitizer has to itself. What clang's OpenMP leaves in
# memory files of ranks that were killed is removed.
threaded_tests = tests/fuzz/fuzz_calls $(addprefix tests/unit/test_, \
	background background_auto ckpt_write comm comm_reduce loader loader_batch loader_run \
	loader_step one_fails queues track track_run)
check-threads:
	@mkdir -p build-tsan
	$(MAKE) distdir distdir=build-tsan/source
	cd build-tsan && { [ -f Makefile ] || ./source/configure CC=clang \
	    --enable-sanitizer=thread --without-cuda; } && $(MAKE) $(threaded_tests)
	@ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)/build-tsan'; \
	export ACCEL_SRC ACCEL_BUILD; . '$(abs_top_srcdir)/tests/sanitizer.sh'; \
	OMP_TOOL=disabled OMP_NUM_THREADS=1 \
	prove --exec '' --timer $(threaded_tests:%=build-tsan/%); rc=$$?; \
	for left in /dev/shm/__KMP_REGISTERED_LIB_*; do \
	    pid=$${left##*LIB_}; pid=$${pid%_*}; \
	    [ -e "/proc/$$pid" ] || rm -f "$$left"; \
	done; exit $$rc
.PHONY: check-threads

# What prove runs; scripts/test reads it. With sanitizers the kernels run on the stand-in, for
# reads and writes outside of their arrays; whole models there would take minutes.
if SANITIZER
sanitized_gpu_tests = $(addprefix tests/unit/test_cuda_, \
	attention conv core graph kernels optable products segments)
unsanitized_tests = $(filter-out $(sanitized_gpu_tests),$(gpu_unit_tests))
endif
print-unit-tests:
	@printf '%s\n' $(filter-out $(unsanitized_tests),$(unit_tests))
print-tests:
	@printf '%s\n' $(TESTS)
.PHONY: print-unit-tests print-tests
EXTRA_DIST += tests/data/optim

# Do the tests bite? Changes of the source that some test must notice (CONTRIBUTING.md).
shell_tests += tests/t/0080-build-changes.t
test-modules: $(check_LTLIBRARIES) $(check_SCRIPTS)
# All that shell tests start; 0120 has its forged checkpoints from a unit test, 2160 packs those
# of GPUs.
test-programs: all test-modules $(filter tests/unit/test_ckpt_forged,$(unit_tests)) \
		$(gpu_unit_tests) \
		$(filter-out $(unit_tests) tests/bench/%, $(check_PROGRAMS))
.PHONY: test-modules test-programs

# Which lines the tests run, a test at a time; COVERAGE: only tests with such a word in their
# names, for the map that is there.
check-coverage:
	@cd $(srcdir) && python3 tests/changes/coverage.py $(COVERAGE)
# Changes that are drawn by rule: SEED, FROM and COUNT say which, CHANGED=1 those of what git has
# as changed, LATER=1 tries what survived with all tests, BUDGET sets the seconds of tests per
# change. It needs what check-coverage found, and clang's Python bindings (python3-clang-14).
python_with_clang = /usr/bin/python3
check-mutants:
	@cd $(srcdir) && $(python_with_clang) tests/changes/campaign.py $(SEED:%=--seed %) \
	    $(FROM:%=--from %) $(COUNT:%=--count %) $(JOBS:%=--jobs %) $(if $(CHANGED),--changed) \
	    $(BUDGET:%=--budget %) $(if $(LATER),--later)
.PHONY: check-coverage check-mutants
EXTRA_DIST += tests/changes/campaign.py tests/changes/coverage.py tests/changes/exit_dump.c \
	tests/changes/no-effect tests/changes/sites.py tests/changes/tree.py

# Unit tests below valgrind, which sees what is read before it is written; no leaks here. Kernels
# of the stand-in run on fibers, whose stacks it does not know.
memory_tests = $(filter-out tests/fuzz/% tests/unit/test_emulator% tests/unit/test_fragments \
	tests/unit/test_cuda%,$(unit_tests))
under_valgrind = $(LIBTOOL) --mode=execute valgrind -q --leak-check=no --error-exitcode=99
check-memory: $(memory_tests) test-modules
	@env ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' OMP_WAIT_POLICY=passive \
	    prove --timer --exec '$(under_valgrind)' $(or $(MEMORY_TESTS),$(memory_tests))
.PHONY: check-memory

# What a build leaves, for the test that git is told to ignore all of it.
print-built:
	@printf '%s\n' $(PROGRAMS) $(check_PROGRAMS) $(LTLIBRARIES) $(check_LTLIBRARIES) \
	    $(EXTRA_LTLIBRARIES) $(check_SCRIPTS) $(pkgconfig_DATA) $(CLEANFILES)
.PHONY: print-built

