"""Pods that claim to be reserve pods."""

import pytest

from koordsched.plugins.reservation.kinds import RESERVATION_AFFINITY, RESERVE_POD
from koordsched.plugins.reservation.webhook.pods import Refused, check_pod


@pytest.mark.parametrize("value", ["true", "false", ""])
def test_the_annotation_of_reserve_pods_is_refused(value):
    with pytest.raises(Refused) as refused:
        check_pod({RESERVE_POD: value})
    assert str(refused.value) == (
        "annotations.scheduling.koordinator.sh/reserve-pod: Forbidden: cannot set in annotations"
    )


@pytest.mark.parametrize("annotations", [{}, {RESERVATION_AFFINITY: "{}"}])
def test_others_are_not(annotations):
    check_pod(annotations)
