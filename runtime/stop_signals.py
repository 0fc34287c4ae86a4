"""Signals of `up`: a handler only notes; what came before the loop ran is not lost."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

STOP: Final = (signal.SIGTERM, signal.SIGINT)


class EarlySignals:
    """From the first line of the process on: SIGTERM and SIGINT are noted, so that none hits a half-started one.

    As PID 1 of a container there is no default action: without this a SIGTERM during the start would be lost.
    """

    def __init__(self) -> None:
        self.noted: list[int] = []
        self._had_terminal = has_terminal()
        self._ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup

    def install(self) -> None:
        """Begin to note."""
        for number in (*STOP, signal.SIGHUP):
            signal.signal(number, self._note)

    def hand_over(self, on_signal: Callable[[signal.Signals], None]) -> Callable[[], None]:
        """From now on the loop is told, beginning with what was noted; returns what ends that.

        A hang-up of the terminal is told as SIGTERM: whoever closes it does not mean a re-read.
        """
        import asyncio  # noqa: PLC0415 - the handlers stand before it is imported, which takes its time

        loop = asyncio.get_running_loop()

        def hang_up() -> None:
            gone = self._had_terminal and not self._ignores_hangup and not has_terminal()
            on_signal(signal.SIGTERM if gone else signal.SIGHUP)

        for number in STOP:
            loop.add_signal_handler(number, on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        for noted in self.noted:
            hang_up() if noted == signal.SIGHUP else on_signal(signal.Signals(noted))
        self.noted.clear()

        def end() -> None:
            # The default action would end the process in its last steps, and the interpreter's end brings it back for
            # every handler of ours; what is ignored stays ignored.
            numbers = (*STOP, signal.SIGHUP)
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

        return end

    def _note(self, number: int, _: FrameType | None) -> None:
        self.noted.append(number)


def has_terminal() -> bool:
    """Has this process a terminal that controls it?"""
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return True
    return False
