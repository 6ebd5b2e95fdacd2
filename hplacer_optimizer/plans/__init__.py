"""Plans: what they hold, their files, fingerprints and store, and how one is made.

making.py       problem, planner, simulate, check       plan.py             Plan
plan_file.py    the container of a plan file            fields.py           checks of its fields
planned_problem.py  the problem in a plan               fingerprint.py      its named parts
matching.py     its nodes in a graph                    simulation.py       a plan, simulated again
comparison.py   two plans                               graph_file.py       a plan in a graph file
store/          plans by fingerprint                    directories/        their files
verdict.py      what was measured of a plan             baseline.py         TensorFlow's placement
guard.py        whether a plan takes effect             ranking.py          which of two is better
training_starts.py  what option verify knows of training starts
"""
