"""The optimizer in a training process.

switch.py        the option in TensorFlow's configs   disabling.py   where it is off
service.py       answers the native pass              variables/     variables on planned devices
known_plans.py   the plans that this process knows    history.py     what became of each graph
verifying.py     option verify: starts that time themselves
cluster_worker.py  a worker of a local cluster
"""
