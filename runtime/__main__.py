"""`python -m runtime …`: every command of the supervisor."""

import sys

from runtime.stop_signals import EarlySignals

if __name__ == "__main__":
    early = EarlySignals()
    if sys.argv[1:2] in (["up"], ["dev"]):
        early.install()  # before anything heavy is imported
    from runtime.cli import main

    sys.exit(main(sys.argv[1:], early))
