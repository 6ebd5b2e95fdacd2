"""A graph or a file becomes a Problem.

captured.py      a captured step, and its Problem       loading.py       `load_problem`
sources.py       what can be loaded                     capturing.py     starts graph_process.py,
runnable_step.py what can be run of a step              graph_process.py which reads graph_files.py
native.py        the native TensorFlow module           gpu_kernels.py   kernels that are not here
training_ops.py  which ops make a training step
"""
