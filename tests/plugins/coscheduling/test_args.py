"""CoschedulingArgs: defaults, rules, advice (coscheduling spec, case 14)."""

import pytest

from koordsched.config.decoding import DecodingErrors, decode
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.plugins.coscheduling.args import CoschedulingArgs, advise, validate

GATES = FeatureGates.parse([])


def read(**fields: object) -> CoschedulingArgs:
    errors = DecodingErrors()
    found = decode(CoschedulingArgs, dict(fields), errors)
    assert (errors.strict, errors.fatal) == ([], [])
    return found


def test_coscheduling_case_14_defaults():
    args = read()
    assert args == CoschedulingArgs(
        default_timeout=Duration.parse("600s"),
        controller_workers=1,
        skip_check_schedule_cycle=False,
        enable_preemption=False,
        aware_network_topology=False,
        default_match_policy="once-satisfied",
    )
    assert validate(args, "", GATES) == []
    assert list(advise(args)) == []


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ({"defaultTimeout": "-1s"}, "coeSchedulingArgs DefaultTimeoutSeconds invalid"),
        ({"controllerWorkers": 0}, "coeSchedulingArgs ControllerWorkers invalid"),
        ({"defaultTimeout": "-1s", "controllerWorkers": 0}, "coeSchedulingArgs DefaultTimeoutSeconds invalid"),
    ],
)
def test_coscheduling_case_14_illegal_arguments_are_refused(fields, complaint):
    assert validate(read(**fields), "", GATES) == [complaint]


@pytest.mark.parametrize(
    "fields",
    [{"defaultTimeout": "0s"}, {"controllerWorkers": 7}, {"defaultMatchPolicy": "no-such-policy"}],
)
def test_what_upstream_accepts_is_accepted(fields):
    assert validate(read(**fields), "", GATES) == []


def test_advice_names_what_has_no_effect():
    advice = list(advise(read(skipCheckScheduleCycle=True, defaultMatchPolicy="sometimes")))
    assert [text.split()[0] for text in advice] == ["skipCheckScheduleCycle", "defaultMatchPolicy"]
    assert "only-waiting, waiting-and-running, once-satisfied" in advice[1]
