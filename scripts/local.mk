# scripts/
dist_bin_SCRIPTS = scripts/accel-cluster
