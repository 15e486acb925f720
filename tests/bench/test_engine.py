"""`python -m bench.engine` as a whole, on small clusters."""

from click.testing import CliRunner

from bench.engine.__main__ import main


def test_workloads_about_one_node_and_about_many():
    sizes = ["--nodes", "10", "--nodes", "20"]
    workloads = ["--workload", "SchedulingBasic", "--workload", "SchedulingWhileGated"]
    ran = CliRunner().invoke(main, [*workloads, *sizes, "--pods", "20"], catch_exceptions=False)
    assert ran.exit_code == 0
    rows = {line.split()[1]: line.split("│")[2:4] for line in ran.stdout.splitlines() if line.startswith("│")}
    assert all(cell.strip() for cell in rows["SchedulingBasic"])
    assert [bool(cell.strip()) for cell in rows["SchedulingWhileGated"]] == [True, False]
    measured = [line.split(":")[0] for line in ran.stderr.splitlines()]
    assert measured == ["SchedulingBasic 10 nodes", "SchedulingBasic 20 nodes", "SchedulingWhileGated 1 nodes"]
