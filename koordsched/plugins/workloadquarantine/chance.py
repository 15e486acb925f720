"""The probability that this many nodes went down by chance.

A binomial test. Each of the `n` nodes that got new pods of a workload goes down with the probability `q` that nodes
have anyway; `q` is estimated by the other nodes in the same time, by the rule of succession (Laplace):

    q = (others that went down + 1) / (others + 2)        chance = P(X >= k), X ~ Binomial(n, q)

So if a whole zone goes down, no workload is quarantined, and in a small cluster more is needed than in a large one.
"""

from __future__ import annotations

from math import exp, lgamma, log

_NEGLIGIBLE = 1e-20


def base_rate(fallen: int, nodes: int) -> float:
    """The probability that a node goes down, after `fallen` of `nodes` did; never 0 or 1."""
    return (fallen + 1) / (nodes + 2)


def tail(n: int, k: int, q: float) -> float:
    """P(X >= k) for X ~ Binomial(n, q), 0 < q < 1."""
    total = 0.0
    for i in range(k, n + 1):
        term = exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * log(q) + (n - i) * log(1.0 - q))
        total += term
        if term < _NEGLIGIBLE and i > n * q:
            break
    return min(total, 1.0)
