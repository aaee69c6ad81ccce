# python/: the package accel_slurm. It is on PYTHONPATH by the module, or comes as a wheel.
slurmpydir = $(pkgdatadir)/python/accel_slurm
dist_slurmpy_DATA = python/accel_slurm/__init__.py \
	python/accel_slurm/_choice.py \
	python/accel_slurm/_imports.py \
	python/accel_slurm/_leaving.py \
	python/accel_slurm/_lib.py \
	python/accel_slurm/_ranks.py \
	python/accel_slurm/_training.py \
	python/accel_slurm/failures.py \
	python/accel_slurm/job.py \
	python/accel_slurm/marker.py \
	python/accel_slurm/py.typed \
	python/accel_slurm/trainer.py \
	python/accel_slurm/workers.py
# First on the PYTHONPATH of a task where accel.python.trainer is set, and nowhere else.
slurmsitedir = $(pkgdatadir)/python-site
dist_slurmsite_DATA = python/site/sitecustomize.py
EXTRA_DIST += python/pyproject.toml python/wheel.py

# For a virtual environment: with the library in it, and no compiler, network or pip needed.
PYTHON3 = python3
python-wheel: libacceljob.la
	@$(PYTHON3) $(srcdir)/python/wheel.py $(PACKAGE_VERSION) .libs/libacceljob.so .
.PHONY: python-wheel
CLEANFILES += accel_slurm-*.whl

shell_tests += tests/t/6225-python-package.t tests/t/6230-python-job.t \
	tests/t/6231-python-ranks.t tests/t/6232-python-workers.t tests/t/6233-python-loops.t \
	tests/t/6245-python-ends.t tests/t/6260-python-places.t tests/t/6265-python-unknown.t
EXTRA_DIST += tests/data/python/loads.py tests/data/python/uneven.py tests/data/python/notebook.py
shell_tests += tests/t/6235-trainer-marker.t tests/t/6236-trainer-site.t \
	tests/t/6240-trainer-stops.t
EXTRA_DIST += tests/t/peers.sh tests/data/python/marker_units.py \
	tests/data/python/old_trainer.py tests/data/python/told_trainer.py \
	tests/data/python/trainings.py
