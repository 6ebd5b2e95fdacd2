"""A plan proves itself while training runs: tried in turns with TensorFlow's own placement.

    first call        TensorFlow's placement; the graph is captured             kernel_state.py
    some calls later  a search in a process beside training                     process_trials.py
    with the plan     calls run with and without it in turns, and are timed     tried_function.py
    at the end        the faster one stays, and the plan keeps the verdict      process_trials.py

The options of `tf.config.optimizer` are part of how a function is instantiated. So one traced
function has two instantiations over the same variables, and a call chooses (function_calls.py).
"""
