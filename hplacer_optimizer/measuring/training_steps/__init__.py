"""The training steps of a process, seen from inside.

step_observer.py  sees each call of a function and each run of a session that trains
recording.py      when steps began and ended, when enough are known, and how long one takes
own_work.py       what the script itself does between steps, where times are virtual
batches.py        what size the batches of a step have, where it shows
"""
