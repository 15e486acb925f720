"""DefaultNormalize of default-plugins spec 3.1."""


def default_normalize(scores, reverse=False):
    """{node: raw} -> {node: 0..100}."""
    highest = max(0, *scores.values())
    if highest == 0:
        return dict.fromkeys(scores, 100) if reverse else scores
    scaled = {node: 100 * score // highest for node, score in scores.items()}
    return {node: 100 - score for node, score in scaled.items()} if reverse else scaled
