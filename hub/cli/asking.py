"""The asker: runs a command against the query API as one identity, and reads the records that come back."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from msgspec import Raw

from hub.cli.moments import moment_of
from hub.cli.options import Connecting
from hub.cli.output import Output, harmless_json, say
from hub.cli.running import CommandError, run_command
from hub.client import NoApi, Queries, QueryRefused
from hub.delivery.connection import Connection
from hub.delivery.errors import RequestTimedOut
from hub.protocol import format_time
from hub.service.exits import Exit

R = TypeVar("R")

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many at most, the newest.")]
Follow = Annotated[bool, typer.Option("--follow", "-F", help="Go on and show what comes, until Ctrl-C.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From then on: 90s, 10m, 2h, 7d ago, or an RFC 3339 time.")
]

LIMIT: Final = 50
ANSWER_SECS: Final = 12.0  # above the API's own deadline for what these commands ask
POLL_SECS: Final = 1.0
MOST_POLL_SECS: Final = 10.0  # while nobody answers
OVERLAP: Final = timedelta(seconds=60)
"""What is looked at again while following: a record can come into history later than one with a later time."""


def ask_api(
    name: str,
    work: Callable[[Queries], Coroutine[Any, Any, Exit]],
    *,
    connecting: Connecting,
    identity: str | None,
    connect_timeout: float,
    as_json: bool,
    verbose: bool,
) -> None:
    """Run a command that asks the API; it leaves the process with its exit code, see `run_command`."""

    async def asking() -> Exit:
        settings = connecting.settings(identity)
        if settings.identity is None:
            raise CommandError("who asks? give --identity ID, or set NATS_HUB_IDENTITY", Exit.USAGE)
        connection = await Connection.open(settings, name=name, timeout_secs=connect_timeout)
        try:
            return await work(Queries(connection, timeout_secs=ANSWER_SECS))
        finally:
            await connection.close()

    run_command(name, asking, verbose=verbose, as_json=as_json)


def read(raw: Raw, kind: type[R]) -> R:
    """A record of an answer.

    Raises:
        CommandError: it is none; the hub is of another version.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CommandError(f"the hub's answer is not understood ({error}): is it of another version?") from None


def show_raw(out: Output, raw: Raw) -> None:
    """Write a record as the hub sent it, one line of JSON."""
    out.line(harmless_json(bytes(raw).decode()))


def say_skipped(refused: QueryRefused) -> None:
    """Tell of a record that is too large to be sent."""
    say(f"left out: {refused}")


async def newest_first(
    queries: Queries, op: str, params: Mapping[str, Any], items: str, *, limit: int | None
) -> list[Raw]:
    """The newest records of a list, newest first; None reads to its end."""
    return [raw async for raw in queries.each(op, params, items, most=limit, on_skipped=say_skipped)]


class Follower:
    """Shows the newest records of a list, oldest first, and then what comes, until the output's reader has gone.

    Args:
        queries: who asks.
        op, items: the list and its name in the answer.
        params: its filter.
        time_of: the time by which the list is ordered.
        key_of: what tells a record from another.
        show: writes one.
    """

    def __init__(
        self,
        queries: Queries,
        op: str,
        items: str,
        params: Mapping[str, Any],
        *,
        time_of: Callable[[Raw], datetime],
        key_of: Callable[[Raw], object],
        show: Callable[[Raw], None],
    ) -> None:
        self._queries = queries
        self._op = op
        self._items = items
        self._params = dict(params)
        self._time_of = time_of
        self._key_of = key_of
        self._show = show
        self._shown: dict[object, datetime] = {}
        self._newest = datetime.now(UTC) - timedelta(days=1)  # of an empty list; this clock may be ahead of the hub's
        self._has_looked = False

    async def show_newest(self, limit: int) -> None:
        """Show the newest ones."""
        self._take(await newest_first(self._queries, self._op, self._params, self._items, limit=limit))

    async def follow(self, out: Output) -> None:
        """Show what comes; while nobody answers, say so once and go on trying."""
        wait_secs = POLL_SECS
        while not out.is_broken:
            await asyncio.sleep(wait_secs)
            try:
                raws = await self._look_again()
            except (NoApi, RequestTimedOut, QueryRefused) as error:
                if isinstance(error, QueryRefused) and error.code != "unavailable":
                    raise
                if wait_secs == POLL_SECS:
                    say(f"waiting: {error}")
                wait_secs = min(2 * wait_secs, MOST_POLL_SECS)
                continue
            wait_secs = POLL_SECS
            if not self._has_looked:
                # What is older than the newest ones was not asked for: it counts as shown.
                self._has_looked = True
                for raw in raws:
                    if self._time_of(raw) <= self._newest:
                        self._shown.setdefault(self._key_of(raw), self._time_of(raw))
            self._take(raws)

    async def _look_again(self) -> list[Raw]:
        since = format_time(self._newest - OVERLAP)
        asked = {**self._params, "since": max(since, self._params.get("since") or since)}
        return await newest_first(self._queries, self._op, asked, self._items, limit=None)

    def _take(self, raws: list[Raw]) -> None:
        for raw in reversed(raws):
            key, moment = self._key_of(raw), self._time_of(raw)
            if key not in self._shown:
                self._show(raw)
            self._shown[key] = moment
            self._newest = max(self._newest, moment)
        # What the next look cannot meet again need not be remembered.
        oldest = self._newest - 2 * OVERLAP
        self._shown = {key: moment for key, moment in self._shown.items() if moment >= oldest}


def since_of(text: str | None, option: str = "--since") -> str | None:
    """The time of an option as the API takes it; None stays."""
    return None if text is None else format_time(moment_of(text, option, now=datetime.now(UTC)))
