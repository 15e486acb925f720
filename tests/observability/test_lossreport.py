"""Many losses, few lines."""

import logging

from koordsched.observability.lossreport import LossReport

LOG = logging.getLogger("koordsched.test.losses")


def test_the_first_at_once_then_how_many_there_were(caplog):
    now = 0.0
    report = LossReport(LOG, "events", lambda: now)
    for second in range(150):
        now = float(second)
        for i in range(10):
            report.lost("rejected: status 403", f"FailedScheduling about a/p{second}-{i}")
        if second == 70:
            report.lost("full: too many wait", "Scheduled about b/q")
    now = 400.0
    report.tick()
    report.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "1 events lost (rejected: status 403), the last one FailedScheduling about a/p0-0",
        "600 events lost (rejected: status 403), the last one FailedScheduling about a/p60-0",
        "1 events lost (full: too many wait), the last one Scheduled about b/q",
        "600 events lost (rejected: status 403), the last one FailedScheduling about a/p120-0",
        "299 events lost (rejected: status 403), the last one FailedScheduling about a/p149-9",
    ]
