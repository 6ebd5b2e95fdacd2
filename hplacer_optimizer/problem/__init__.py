"""A graph on a machine: problem files, the simulator, and what a placement has to keep.

problem_file.py problem files, checks of placements     constraints.py  where ops may run
simulator.py    one step under a placement              bounds.py       how fast one could be
memory.py       what frameworks add to its memory       description.py  a look for notebooks
"""
