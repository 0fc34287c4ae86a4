"""The catalogue of the benchmarks: a new case is a line here."""

from typing import Final

from hub.bench.end_to_end_case import END_TO_END
from hub.bench.inbox_case import INBOX
from hub.bench.intake_case import INTAKE
from hub.bench.rounds import Case
from hub.bench.router_case import ROUTER

CASES: Final[dict[str, Case]] = {case.name: case for case in (ROUTER, INBOX, INTAKE, END_TO_END)}
