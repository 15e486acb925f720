"""The seed and the depth of the run, settled before any process of it collects tests."""

from tests import depth
from tests.parity.fresh import SEED, choose_seed


def pytest_configure(config):
    depth.quick = "not slow" in config.option.markexpr
    choose_seed()


def pytest_report_header(config):
    return f"random states: {SEED}={choose_seed()}"
