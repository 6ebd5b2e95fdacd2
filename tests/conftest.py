"""What holds for all tests."""

import signal

# A shell's background job ignores SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
