"""For all tests in Python."""

import signal

# A shell that runs the tests in the background has them ignore interrupts, and so the programs that
# they start; tests of Ctrl-C need them to be as they are for a user.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
