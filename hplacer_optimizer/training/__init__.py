"""Trains the policies of rollouts: problems, evolution, choice of chains, comparison.

problems.py --> evolution.py --> selection.py --> a policy file (planners/policies.py)
                                              --> evaluation.py, against policies set by hand
"""
