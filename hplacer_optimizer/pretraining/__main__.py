"""Detaches a search in the background: `python -m hplacer_optimizer.pretraining DIRECTORY`.

The training process gets no child that it would have to wait for, but the id of the search on
standard output; the search itself writes to standard error only. The fork comes before anything is
imported that starts threads. Signals that end the search wait until it can keep its best plan.
"""

import os
import signal
import sys

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    child = os.fork()
    if child:
        os.write(1, str(child).encode())
        os._exit(0)
    os.dup2(2, 1)
    module = "hplacer_optimizer.pretraining.background_search"
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
