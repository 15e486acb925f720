"""What a seed decides before anything runs: how large, how long, how bad the weather."""

from dataclasses import dataclass, replace
from random import Random

FEATURES = ("quotas", "volumes", "permits", "extenders")
"""What a world may have beside pods and nodes, "loads", "breakers", "numa", "devices" and "gangs". Nearly half of all
worlds have none, so that runs stay short."""

GANGS = "gangs:"
"""What a seed begins with whose world has gangs in any case."""


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

    @property
    def latest(self):
        return 0.8 * (self.lease[0] - self.lease[1])

    @classmethod
    def of(cls, seed):
        """The plan of a seed. "gangs:17" is seed 17 in a world that has gangs in any case."""
        rng = Random(f"{seed} plan")
        elects = rng.random() < 0.8
        kinds = ("priority", "gates", "ports", "selector", "spread", "anti", "affinity", "gpu", "tolerations")
        plan = cls(
            seed=str(seed),
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
            **_more(
                Random(f"{seed} features"),
                Random(f"{seed} loads"),
                Random(f"{seed} breakers"),
                Random(f"{seed} numa"),
                Random(f"{seed} devices"),
            ),
            blind_handovers=Random(f"{seed} hand-overs").random() < 0.25,
            in_protobuf=Random(f"{seed} encoding").random() < 0.25,
        )
        if "breakers" in plan.features:
            # Breakers open and close in their own time, and a share of very few nodes is none.
            plan = replace(plan, nodes=plan.nodes + 3, most_pods=plan.most_pods + 20, chaos=plan.chaos + 30)
        return plan._with_gangs(Random(f"{seed} gangs"))

    def _with_gangs(self, rng):
        if rng.random() >= 0.2 and not self.seed.startswith(GANGS):
            return self
        # Half of the time little else decides where members fit, so that more can be said about it in the end.
        single = rng.random() < 0.5
        kept = tuple(feature for feature in self.features if not single or feature in ("quotas", "permits", "extenders"))
        rivals, large = rng.random() < 0.2, rng.random() < 0.15
        return replace(
            self,
            features=(*kept, "gangs"),
            rivals=rivals,
            large_gangs=large,
            most_pods=self.most_pods + 15 + 20 * rivals + 45 * large,
        )


def _more(rng, of_loads, of_breakers, of_numa, of_devices):
    """What came later has a generator of its own: worlds without it stay what they were."""
    plain = rng.random() < 0.45
    features = () if plain else tuple(feature for feature in FEATURES if rng.random() < 0.45)
    if of_loads.random() < 0.2:
        features += ("loads",)
    if of_breakers.random() < 0.2:
        features += ("breakers",)
    if of_numa.random() < 0.2:
        features += ("numa",)
    if of_devices.random() < 0.2:
        features += ("devices",)
    return {
        "features": features,
        "by_runtime": rng.random() < 0.75,
        "checks_parents": rng.random() < 0.3,
        "revokes": rng.random() < 0.6,
        "default_max": rng.choice([(), (), (("cpu", "3"), ("memory", "6Gi"))]),
        "quotas_come_late": rng.random() < 0.5,
    }
