"""A short soak. That memory is flat takes half an hour to see (`make soak`); a minute shows everything else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.soak.chart import chart
from tests.soak.run import Plan, Soak

PLAN = Plan(
    duration=60.0,
    rate=30.0,
    warm_up=20.0,
    restart_every=25.0,
    first_outage=1.0,
    cut_every=9.0,
    sample_every=1.0,
    seed=1,
    # While it warms up: what is kept for later grows to its bounds.
    most_growth=0.25,
)


@pytest.mark.slow
async def test_a_minute_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    async with asyncio.timeout(300):
        report = await Soak(PLAN, tmp_path, print).run()
    assert [f"{verdict.question}: {verdict.found}" for verdict in report.verdicts if not verdict.passed] == []
    assert report.bound > 0.9 * PLAN.duration * PLAN.rate
    # None of the disturbances has been left out.
    assert min(len(report.restarts), report.cuts, report.node_failures, report.nodes_replaced) > 0
    picture = ElementTree.fromstring(chart("A soak", report.samples, report.restarts))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    points = [len(line.attrib["points"].split()) for line in lines]
    assert min(points) >= len(report.samples) - 1
