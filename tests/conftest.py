"""The seed of the run, settled before any process of it collects tests."""

from tests.parity.fresh import SEED, choose_seed


def pytest_configure(config):
    choose_seed()


def pytest_report_header(config):
    return f"random states: {SEED}={choose_seed()}"
