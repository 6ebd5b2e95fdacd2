"""Detaches a search in the background: `python -m hplacer_optimizer.pretraining DIRECTORY`.

The training process gets no child that it would have to wait for. The fork comes before anything
is imported that starts threads.
"""

import os
import sys

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    module = "hplacer_optimizer.pretraining.background_search"
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
