# scripts/
dist_bin_SCRIPTS = scripts/accel-cluster
include scripts/accel/local.mk
