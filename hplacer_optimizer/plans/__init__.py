"""A placement with where it came from: Plan, its file, fingerprint and store, and making one.

making.py       problem, planner, simulate, check       plan.py             Plan
file.py         the container of a plan file            fields.py           checks of its fields
planned_problem.py  the problem in a plan               fingerprint.py      its named parts
store/          plans by fingerprint
"""
