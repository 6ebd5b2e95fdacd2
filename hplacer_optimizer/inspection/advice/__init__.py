"""Which way of using devices suits a model: one device, a plan over several, data parallelism.

advising.py   `advise`, and what it returns     subjects.py  the step at any batch size
ways.py       the ways that are compared        scaling.py   ... where it cannot be captured
replicas.py   data parallelism                  memory.py    what frameworks add
allreduce.py  its gradients over the links      verdicts.py  the advice as a sentence
gradients.py  how large these are               changes.py   and what would change it
                                                picture.py   the ways as bars
"""
