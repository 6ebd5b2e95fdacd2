"""What a machine really does: rates, overheads, links and op costs, measured on it.

probes.py     small graphs that are timed
fitting.py    numbers from their times
traces.py     what each op of a traced step took
op_costs.py   a cost table from traces of a graph's step
calibrate.py  all of it, for a machine and a graph
"""
