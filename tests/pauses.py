"""Jobs that pause whenever they may."""

from koordsched.scheduling import memberplacing


def pause_always(monkeypatch):
    """Between any two members, and any two steps of a search, others have the loop."""
    monkeypatch.setattr(memberplacing, "PAUSE_AFTER", 0.0)
    monkeypatch.setattr(memberplacing, "_LOOK_AFTER", 1)
    monkeypatch.setattr(memberplacing, "_STEPS_BETWEEN", 1)
