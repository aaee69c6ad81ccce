# srun_plugin/
