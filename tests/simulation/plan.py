"""What a seed decides before anything runs: how large, how long, how bad the weather."""

from dataclasses import dataclass, replace
from random import Random

FEATURES = ("quotas", "volumes", "permits", "extenders")
"""What a world may have beside pods and nodes, and what of `LATER` it has. Nearly half of all worlds have none of
these, so that runs stay short."""

LATER = ("loads", "breakers", "numa", "devices", "reservations", "gangs", "claims")
"""Each is in a fifth of the worlds."""

OFTEN_MEASURED = frozenset({"quotas", "breakers", "numa", "devices"})
"""Features whose plugins read the clock often, to measure themselves or for hints. Every reading takes time, and all
replicas share one CPU: with several of these it would be busy all the time, and a leader could not renew a short lease.
"""


@dataclass(frozen=True)
class Plan:
    """Times in virtual seconds; chances between 0 and 1.

    `latest` bounds how long a request may travel to the server: a write sent just before its lease's deadline must
    not arrive after somebody else's lease has begun (docs/reliability.md, "The window").
    """

    seed: str
    nodes: int
    pods: int
    most_pods: int
    replicas: int
    elects: bool
    chaos: float
    lease: tuple[float, float, float]
    weather: tuple[float, float, float]
    """Weights of calm, flaky and cut off."""
    pause_between: float
    trouble_between: float
    cycle_cost: float
    page_size: int
    kinds: tuple[str, ...]
    """What pods may ask for."""
    features: tuple[str, ...] = ()
    by_runtime: bool = True
    """Quotas may use their runtime, not their max."""
    checks_parents: bool = False
    revokes: bool = False
    default_max: tuple[tuple[str, str], ...] = ()
    """The max of the default quota; empty for one without a bound."""
    quotas_come_late: bool = False
    """The ElasticQuota kind is not there in the beginning, and may vanish again."""
    blind_handovers: bool = False
    """Leaders end while the others see pods late."""
    in_protobuf: bool = False
    """Lists and watches come in protobuf."""
    rivals: bool = False
    """Many gangs want the room of few."""
    large_gangs: bool = False
    """Some gangs have so many members that placing them takes several turns of the loop."""
    interrupted_gangs: bool = False
    """Leaders are killed while they bind the members of a gang."""
    resizes: bool = False
    """Running pods are resized in place."""
    interruptions: bool = False
    """Pods that were just placed are deleted, replaced or refused, or lose their node; many promises end."""
    moves: bool = False
    """Running pods are on another node from one moment to the next."""
    lease_edges: bool = False
    """Much happens at the edges of leases, and reading the clock by which they count takes time, too."""
    mixed_groups: bool = False
    """Many groups have gangs of several match policies, and more members than are needed."""

    @property
    def latest(self):
        return 0.8 * (self.lease[0] - self.lease[1])

    @classmethod
    def of(cls, seed):
        """`seed`: a number, or one with features that its world is to have in any case: "7+reservations"."""
        whole, (seed, *forced) = str(seed), str(seed).split("+")
        if unknown := set(forced).difference(FEATURES, LATER):
            raise ValueError(f"no such feature: {', '.join(sorted(unknown))}")
        rng = Random(f"{seed} plan")
        # What came later has a generator of its own: worlds without it stay what they were.
        later = [name for name in LATER if Random(f"{seed} {name}").random() < 0.2]
        elects = rng.random() < 0.8
        kinds = ("priority", "gates", "ports", "selector", "spread", "anti", "affinity", "gpu", "tolerations")
        plan = cls(
            seed=whole,
            nodes=rng.randint(2, 7),
            pods=rng.randint(4, 15),
            most_pods=rng.choice([15, 25, 40]),
            replicas=rng.choice([1, 2, 2, 3]) if elects else 1,
            elects=elects,
            chaos=rng.uniform(15, 60),
            lease=rng.choice([(15.0, 10.0, 2.0), (6.0, 4.0, 1.0), (3.0, 2.0, 0.5)]),
            weather=rng.choice([(1, 0, 0), (8, 2, 1), (4, 4, 1), (2, 6, 2)]),
            pause_between=rng.choice([0.2, 0.5, 2.0]),
            trouble_between=rng.choice([4.0, 10.0, 30.0, 1000.0]),
            cycle_cost=rng.choice([0.00001, 0.0005, 0.003]),
            page_size=rng.choice([3, 10, 500]),
            kinds=tuple(kind for kind in kinds if rng.random() < 0.5),
            **_more(Random(f"{seed} features"), [*later, *forced]),
            blind_handovers=Random(f"{seed} hand-overs").random() < 0.25,
            in_protobuf=Random(f"{seed} encoding").random() < 0.25,
            interruptions=Random(f"{seed} interrupting").random() < 0.25,
            resizes=Random(f"{seed} resizing").random() < 0.25,
            moves=Random(f"{seed} moving").random() < 0.25,
            lease_edges=elects and Random(f"{seed} edges").random() < 0.25,
        )
        often = len(OFTEN_MEASURED.intersection(plan.features))
        if often > 1 or plan.lease_edges * often or {"gangs", "claims"}.intersection(plan.features):
            # Gangs bring many more pods, of which most wait: each that is tried reads the clock twenty times. A search
            # for devices reads it at every step. What is sent at the end of a lease must not wait for the CPU, too.
            plan = replace(plan, cycle_cost=min(plan.cycle_cost, plan.lease[1] / 3000))
        if "breakers" in plan.features:
            # Breakers open and close in their own time, and a share of very few nodes is none.
            plan = replace(plan, nodes=plan.nodes + 3, most_pods=plan.most_pods + 20, chaos=plan.chaos + 30)
        return plan._with_gangs(Random(f"{seed} kinds of gangs"), forced) if "gangs" in plan.features else plan

    def _with_gangs(self, rng, forced):
        # Half of the time little else decides where members fit, so that more can be said about it in the end.
        kept = {*forced, *FEATURES, "gangs"} if rng.random() < 0.5 else set(self.features)
        rivals, large, interrupted = rng.random() < 0.2, rng.random() < 0.15, rng.random() < 0.3
        return replace(
            self,
            features=tuple(feature for feature in self.features if feature in kept),
            rivals=rivals,
            large_gangs=large,
            interrupted_gangs=interrupted,
            mixed_groups=Random(f"{self.seed} mixed groups").random() < 0.3,
            most_pods=self.most_pods + 15 + 20 * rivals + 45 * large,
        )


def _more(rng, later):
    plain = rng.random() < 0.45
    features = () if plain else tuple(feature for feature in FEATURES if rng.random() < 0.45)
    features = tuple(dict.fromkeys((*features, *later)))
    return {
        "features": features,
        "by_runtime": rng.random() < 0.75,
        "checks_parents": rng.random() < 0.3,
        "revokes": rng.random() < 0.6,
        "default_max": rng.choice([(), (), (("cpu", "3"), ("memory", "6Gi"))]),
        "quotas_come_late": rng.random() < 0.5,
    }
