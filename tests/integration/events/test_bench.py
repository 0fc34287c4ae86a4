"""The event source's benchmark measures all that it promises; its figures are not judged here."""

from hub.bench.event_measures import Load
from hub.bench.events import run
from tests.support.postgres import Postgres


async def test_every_figure_is_measured_beside_its_bare_client(postgres_cluster: Postgres) -> None:
    load = Load(appends=10, pages=2, latencies=4, replay=300, rounds=2)
    address = postgres_cluster.url(await postgres_cluster.create_database())
    figures = await run(load, postgres=address)
    lines = {line.name: line for line in figures.lines}
    assert len(lines) == 8
    for name, line in lines.items():
        assert 0 < line.measured.least <= line.measured.median <= line.measured.most, name
        assert (line.bare is None) == name.startswith("PostgreSQL")
        assert (line.ratio is None) == (line.bare is None)
