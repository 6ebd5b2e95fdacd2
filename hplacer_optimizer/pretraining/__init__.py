"""Makes and tries plans outside of training: from a list of jobs, on Ray, or in the background.

jobs.py        a graph, a machine, a planner: load, plan, store
job_fields.py  what jobs are made of, in a list and on the command line
job_list.py    many of them from a YAML file
on_ray.py      many of them at once
background.py  a job that a training script leaves to a process of its own (__main__.py)
trial.py       plans tried on the user's own script; trial_texts.py  what is told of that
"""
