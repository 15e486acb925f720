"""What checkpoints of journals keep of plugins, carried from one set of them to another."""


def carry_over(one, other):
    """Restores in the plugins of another handle what those of one handle know; as a journal does it."""
    for name, data in one.states.encoded().items():
        other.states.restore(name, data)
    assert other.states.encoded() == one.states.encoded()
