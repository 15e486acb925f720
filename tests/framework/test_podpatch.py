"""What is sent of a pod's metadata when an earlier attempt had written something else."""

from koordsched.api.meta import ObjectMeta
from koordsched.framework.podpatch import PodPatch


def patched(annotations=(), labels=()):
    patch = PodPatch()
    for key, value in dict(annotations).items():
        patch.annotate(key, value)
    for key, value in dict(labels).items():
        patch.label(key, value)
    return patch


def test_what_only_an_earlier_attempt_wrote_goes_back_to_what_is_shown():
    """What was written then may be on the pod though the watch does not show it."""
    earlier = patched({"gone": "1", "kept": "1", "both": "1"}, {"zone": "a"})
    now = patched({"both": "2", "own": "2"})
    shown = ObjectMeta(name="p", annotations={"kept": "of before"}, labels={"zone": "z"})
    assert now.after(earlier, shown).changes(None) == {
        "annotations": {"gone": None, "kept": "of before", "both": "2", "own": "2"},
        "labels": {"zone": "z"},
    }
    assert now.changes(None) == {"annotations": {"both": "2", "own": "2"}}, "it stays as it is"
    assert earlier.changes(shown)["annotations"] == {"gone": "1", "kept": "1", "both": "1"}


def test_what_is_shown_is_not_sent():
    shown = ObjectMeta(name="p", annotations={"a": "1"}, labels={"l": "1"})
    assert patched({"a": "1"}, {"l": "1"}).changes(shown) == {}
    assert patched({"a": "1", "b": "1"}, {"l": "2"}).changes(shown) == {"annotations": {"b": "1"}, "labels": {"l": "2"}}
