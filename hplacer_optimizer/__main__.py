"""`python -m hplacer_optimizer` is the same as the command `hplacer`."""

import sys

from hplacer_optimizer.cli import main

sys.exit(main())
