"""The log of all writes while the disk is full."""

import os

import pytest

from koordsched.fakecluster.datalog import DataLog
from tests.fakecluster.apiclient import CONFIG_MAPS, Api


def started(directory):
    api = Api()
    DataLog(directory).start(api.registry)
    return api


def write(api, name):
    return api.post(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": name}})[0]


def names(api):
    return [each["metadata"]["name"] for each in api.get(CONFIG_MAPS)[1]["items"]]


@pytest.mark.parametrize("room", [0, 1, 100], ids=["no room", "room for a byte", "room for a part"])
def test_a_write_that_has_no_room_fails_and_leaves_the_log_readable(tmp_path, monkeypatch, room):
    api, real, left = started(tmp_path), os.write, room

    def full(file, data):
        nonlocal left
        written = real(file, data[:left])
        left -= written
        return written

    before = names(api)
    assert write(api, "a") == 201
    monkeypatch.setattr(os, "write", full)
    assert write(api, "b") == 500
    monkeypatch.setattr(os, "write", real)
    assert write(api, "c") == 201
    assert names(started(tmp_path)) == sorted([*before, "a", "c"])


def test_a_line_that_is_written_in_parts_is_whole_in_the_end(tmp_path, monkeypatch):
    api, real = started(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:10]))
    assert write(api, "a") == 201
    monkeypatch.setattr(os, "write", real)
    assert names(started(tmp_path)) == names(api)
