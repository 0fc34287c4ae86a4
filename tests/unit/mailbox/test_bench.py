"""The benchmark of the mailbox runs and measures what it says."""

from pathlib import Path

from hub.bench.mailbox import run


async def test_the_benchmark_measures_each_case(tmp_path: Path) -> None:
    cases = await run(tmp_path, 300, latency_count=5)
    assert [str(case["case"]).split(",")[0] for case in cases] == ["mailbox", "aiosqlite"] * 2
    for case in cases:
        assert isinstance(case["accepts_per_sec"], int)
        assert case["accepts_per_sec"] > 0
