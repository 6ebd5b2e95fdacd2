"""Training graphs to try planners on, and small training runs, a module each.

graphs.py            the graphs of the papers and later ones, by name
WORKLOADS            modules that train: `train(setup) -> Training`

Seeds are fixed: two runs of a workload with the same setup print the same losses, bit by bit.
"""

WORKLOADS = ("inception_v3", "keras_digits", "lstm2", "while_function")
