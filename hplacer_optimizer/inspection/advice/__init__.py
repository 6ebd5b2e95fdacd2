"""Which way of using devices suits a model: one device, a plan over several, data parallelism.

advising.py   `advise`, and what it returns     subjects.py  the step at any batch size
ways.py       the ways that are compared        scaling.py   ... where it cannot be captured
replicas.py   data parallelism                  verdicts.py  the advice as a sentence
allreduce.py  its gradients over the links      changes.py   and what would change it
gradients.py  how large these are               picture.py   the ways as bars
"""
