"""The errors that answers of API servers stand for."""

import pytest

from koordsched.client.errors import AlreadyExists, ApiError, Conflict, Gone, NotFound, error_from_status


@pytest.mark.parametrize(
    ("body", "status", "kind", "code"),
    [
        (b'{"kind":"Status","code":404,"reason":"NotFound"}', 0, NotFound, 404),
        (b'{"kind":"Status","code":404,"reason":"NotFound"}', 409, Conflict, 409),
        (b'{"kind":"Status","code":409,"reason":"AlreadyExists"}', 409, AlreadyExists, 409),
        (b'{"kind":"Status","code":410,"reason":"Expired"}', 0, Gone, 410),
        (b'{"kind":"Status","reason":"Expired"}', 0, Gone, 0),
        (b'{"kind":"Status"}', 0, ApiError, 0),
        (b"<html>", 502, ApiError, 502),
    ],
)
def test_the_code_of_the_answer_counts_before_that_of_its_body(body, status, kind, code):
    error = error_from_status(body, status)
    assert (type(error), error.status) == (kind, code)
