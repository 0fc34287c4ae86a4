"""Cleaning a stream of one owner's old records, in stored order, keeping each run's last."""

from hub.events.base import CleanupReport
from hub.events.jetstream.reading import RunReader, run_record, scan
from hub.events.jetstream.subjects import Subjects
from hub.events.jetstream.surface import StoredMessage, StreamSurface
from hub.events.records import Ownership, RunKey, decode


class Cleaner:
    """One cleanup: walks the tenant's messages once, oldest first, until the limit is passed or the end is reached.

    A tenant's subjects are shared by its accounts and users, so foreign messages are walked past, as are younger and
    broken ones. A run's last record is never deleted, by any cleaner: a record is deleted only while a later readable
    one is known, and that one can only be followed by still later ones.
    """

    def __init__(self, surface: StreamSurface, subjects: Subjects, reader: RunReader, owner: Ownership) -> None:
        self._surface, self._subjects, self._reader, self._owner = surface, subjects, reader, owner
        self._ends: dict[str, tuple[int, bool]] = {}

    async def clean(self, before: str, limit: int, *, keep_open: bool) -> CleanupReport:
        """See `RunLog.cleanup`."""
        deleted = scanned = 0
        async for message in scan(self._surface, self._subjects.tenant(self._owner)):
            scanned += 1
            if not await self._may_go(message, before, keep_open=keep_open):
                continue
            if deleted == limit:
                return CleanupReport(deleted=deleted, scanned=scanned, done=False)
            deleted += await self._surface.delete(message.place)
        return CleanupReport(deleted=deleted, scanned=scanned, done=True)

    async def _may_go(self, message: StoredMessage, before: str, *, keep_open: bool) -> bool:
        record = decode(message.data)
        if record is None or record.ownership != self._owner or record.timestamp >= before:
            return False
        run = RunKey(record.ownership, record.session_id, record.run_id)
        if self._subjects.run(run) != message.subject:
            return False  # somebody else's copy on a subject that is not this run's
        if message.subject not in self._ends:
            last = await self._reader.last(run)
            end = None if last is None else run_record(run, last)
            if last is None or end is None:
                return False
            self._ends[message.subject] = (last.place, end.terminal)
        last_place, closed = self._ends[message.subject]
        return message.place < last_place and (closed or not keep_open)
