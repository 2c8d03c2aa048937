"""What holds for all tests: an interrupt reaches the processes that they start.

A shell's background job ignores it and hands that on, so `make test &` failed where a test
interrupts a command.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
