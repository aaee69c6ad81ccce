# Python programs that are preempted at random moments (tests/preempt/random_stops.sh). It can be
# stopped and called again: STATE keeps what has passed. COUNT runs of each program, SEED, and
# NAMES, shell patterns with commas between them, say which.
EXTRA_DIST += tests/preempt/draw.py tests/preempt/history.py tests/preempt/hooks.py \
	tests/preempt/preempted.sh tests/preempt/random_stops.sh tests/preempt/run_one.py
check-python: all
	@env ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' \
	    PEERS_PYTHON="$${PEERS_PYTHON:-$$($(srcdir)/scripts/install-deps --peers-cache)}" \
	    ACCEL_LONG_TESTS=1 prove --exec '' $(srcdir)/tests/t/6232-python-workers.t \
	    $(srcdir)/tests/t/6233-python-loops.t
	@env ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' \
	    PEERS_PYTHON="$${PEERS_PYTHON:-$$($(srcdir)/scripts/install-deps --peers-cache)}" \
	    prove --exec '' -v $(srcdir)/tests/preempt/random_stops.sh :: \
	    $(or $(STATE),check-python.state) $(or $(COUNT),20) \
	    $(or $(SEED),1) $(if $(NAMES),'$(NAMES)')
.PHONY: check-python
shell_tests += tests/t/6250-python-slurm.t
