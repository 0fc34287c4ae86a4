"""The benchmark command, as a smoke run with real processes: every figure is there."""

import asyncio
import json
import subprocess
import sys
from typing import Any

DEADLINE_SECS = 100


async def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "hub", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECS,
    )


def contenders(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in report["contenders"]}


async def test_a_quick_run_tells_every_figure_of_every_case() -> None:
    done = await bench("all", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    reports = {report["case"]: report for report in json.loads(done.stdout)}
    assert list(reports) == ["router", "inbox", "intake", "e2e"]
    for report in reports.values():
        assert report["load"]["size"] == 400
        assert report["load"]["window"] > 0
        assert report["load"]["rounds"] == 1
        assert "nats-server" in report["machine"]
        for one in report["contenders"]:
            assert one["messages"] > 0
            assert one["rate"]["least"] > 0
            assert one["cpu_secs_per_10k"]["server"] >= 0
        for ratio in report["ratios"]:
            assert 0 < ratio["ratio"]["least"] <= ratio["ratio"]["median"] <= ratio["ratio"]["most"]
    assert set(contenders(reports["router"])) == {"router", "sourcing", "sequential"}
    assert set(contenders(reports["inbox"])) == {"inbox", "pull"}
    end_to_end = contenders(reports["e2e"])
    assert set(end_to_end["e2e"]["cpu_secs_per_10k"]) == {"server", "router", "sender", "reader"}
    intake = contenders(reports["intake"])
    assert set(intake) == {"intake", "inbox", "pull"}
    for one in (*end_to_end.values(), *intake.values()):
        assert 0 < one["p50_ms"]["median"] <= one["p99_ms"]["median"]
    for subject in (contenders(reports["router"])["router"], end_to_end["e2e"]):
        assert subject["history_secs"] > 0
    asked = {
        (ratio["standard"]["comparator"], ratio["standard"]["quantity"]): ratio["standard"]
        for report in reports.values()
        for ratio in report["ratios"]
        if report["case"] != "intake"
    }
    assert asked["sourcing", "rate"]["at_least"] == 0.30
    assert asked["sequential", "rate"]["at_least"] == 10
    assert asked["one-hop", "rate"]["at_least"] == 0.25
    assert asked["one-hop", "p50_ms"]["at_most"] == 3
    rates = [one["standard"] for one in reports["intake"]["ratios"] if one["standard"]["quantity"] == "rate"]
    assert [(rate["comparator"], rate["at_least"]) for rate in rates] == [("inbox", 0.4), ("pull", 0.4)]


async def test_an_envelope_too_small_to_be_one_is_refused_in_one_line() -> None:
    done = await bench("inbox", "--quick", "--size", "10")
    assert done.returncode == 1
    assert "expected at least" in done.stderr
    assert "Traceback" not in done.stderr
