"""The papers' experiment: planners against workloads, scored by the simulator, as one table.

tasks.py       what is measured: workload, parameters, machine, the papers' own figures
experiment.py  runs planners on tasks; every finished cell is kept at once
tables.py      text, Markdown and JSON of what was found
charts.py      a bar chart per task
demo.py        `hplacer demo`: a measured gain, and training with plans
"""
