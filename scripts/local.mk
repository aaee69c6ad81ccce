# scripts/
dist_bin_SCRIPTS = scripts/accel-cluster
dist_pkgdata_DATA = scripts/cluster-config.sh scripts/cluster-daemons.sh
shell_tests += tests/t/0100-cluster-modes.t tests/t/0101-cluster-kill.t \
	tests/t/0102-cluster-run.t
EXTRA_DIST += tests/bench/cluster_up.sh
EXTRA_DIST += scripts/install-deps scripts/peers.txt scripts/quickstart scripts/test
