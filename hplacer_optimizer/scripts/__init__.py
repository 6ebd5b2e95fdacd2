"""Runs a user's own script until its training step has been seen.

    observed_run.py ---> [__main__.py runs script.py in a process group of its own]
                    <--- exchange.py: what the two tell each other, as files of a directory

    asked for by                       looks, in the script's process
    step_capture.capture_script        step_catcher.py: the training step, as the pass gets it
    script_graph.graph_of_script       script_graph.py: its graph, for any machine and batch size
    step_timing.time_script            step_timer.py: when its training steps begin and end
    script_trial.try_in_script         plugin/trials: steps without and with a plan, in turns

    working_copy.py   a script that writes has a copy of the working directory
    file_guard.py     what else it must not change

The pass imports exchange.py and step_catcher.py. They start no process.
"""
