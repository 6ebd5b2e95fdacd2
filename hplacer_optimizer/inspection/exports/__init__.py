"""Plans for other programs: as devices in a graph file, and as TensorBoard's graph page.

Each module has two sides: what the caller asks for, and `main`, which a child process runs because
it needs TensorFlow (`tf_process.py`).
"""
