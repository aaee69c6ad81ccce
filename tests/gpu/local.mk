# A tree to try accel on another machine's GPU: make gpu-trial
EXTRA_DIST += tests/gpu/libraries.sh tests/gpu/pack.sh tests/gpu/parts.sh tests/gpu/reader.sh \
	tests/gpu/trial.sh
gpu_trial_file = $(abs_builddir)/accel-gpu-trial.tar.gz
gpu_trial_programs = accel$(EXEEXT) examples/train$(EXEEXT) $(gpu_unit_tests) \
	tests/bench/bench_cuda$(EXEEXT) tests/bench/bench_cuda_attention$(EXEEXT)
gpu_trial_pack = $(srcdir)/tests/gpu/pack.sh '$(abs_top_srcdir)' '$(abs_top_builddir)' \
	'$(gpu_trial_file)' '$(PACKAGE_VERSION)' '$(CUDA_NVCCFLAGS)' $(gpu_trial_programs)
if HAVE_CUDA
# Where the kernels are not those of a trial nothing is built: pack.sh says why.
gpu-trial: $(if $(findstring code=sm_90a,$(CUDA_NVCCFLAGS)), \
		$(gpu_trial_programs) $(gpu_module) tests/bench/gpu/kernel_times.la)
	@$(gpu_trial_pack)
# For the test, which builds nothing.
print-gpu-trial:
	@echo "$(gpu_trial_pack)"
else
gpu-trial:
	@echo 'gpu-trial: this build has no CUDA module; configure said why' >&2; exit 1
print-gpu-trial:
	@:
endif
.PHONY: gpu-trial print-gpu-trial
shell_tests += tests/t/2160-gpu-trial.t
CLEANFILES += accel-gpu-trial.tar.gz
