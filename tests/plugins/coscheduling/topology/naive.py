"""The solver as the specification has it, in plain Python: objects, recursion, one comparison after the other."""

from functools import cmp_to_key

NODES = "NodeTopologyLayer"


class Domain:
    """A tree node; leaves bear the names of nodes."""

    def __init__(self, layer, name, parent=None):
        self.layer, self.name, self.parent = layer, name, parent
        self.children = []
        self.offer = self.existing = self.score = 0
        if parent is not None:
            parent.children.append(self)

    def child(self, layer, name):
        """The child of this name, made if there is none."""
        for each in self.children:
            if each.name == name:
                return each
        return Domain(layer, name, self)

    def walk(self):
        """This and all below."""
        yield self
        for child in self.children:
            yield from child.walk()

    def chain(self):
        """This and all above."""
        return [self, *(self.parent.chain() if self.parent is not None else [])]


def tree(layer_names, places):
    """`layer_names`: between the root and the nodes; `places`: node -> the names of its domains, topmost first."""
    root = Domain("ClusterTopologyLayer", "")
    for name, path in places.items():
        domain = root
        for layer, part in zip(layer_names, path, strict=True):
            domain = domain.child(layer, part)
        domain.child(NODES, name)
    return root


def fill(root, offers, existing, scores, multiples):
    """Sums, and offers rounded down, from the leaves on up."""
    for child in root.children:
        fill(child, offers, existing, scores, multiples)
    if root.layer == NODES:
        root.offer, root.existing, root.score = offers[root.name], existing.get(root.name, 0), scores.get(root.name, 0)
    else:
        root.offer = sum(child.offer for child in root.children)
        root.existing = sum(child.existing for child in root.children)
        root.score = sum(child.score for child in root.children)
    multiple = multiples.get(root.layer, 1)
    root.offer -= root.offer % multiple


def compared(a, b, sign):
    """Which comes first: more existing pods, then less room (sign 1) or more (-1), a higher score, the name."""
    for one, other in zip(a.chain(), b.chain(), strict=True):
        if one.existing != other.existing:
            return -1 if one.existing > other.existing else 1
    for one, other in zip(a.chain(), b.chain(), strict=True):
        if one.offer != other.offer:
            return sign if one.offer > other.offer else -sign
    if a.score != b.score:
        return -1 if a.score > b.score else 1
    return (a.name > b.name) - (a.name < b.name)


def spread(domain, wanted, multiples, takes):
    """How much the domain takes; `takes` gets (node, number)."""
    share = min(domain.offer, wanted)
    share -= share % multiples.get(domain.layer, 1)
    if domain.layer == NODES:
        takes.append((domain.name, share))
        return share
    taken = 0
    for child in sorted(domain.children, key=cmp_to_key(lambda a, b: compared(a, b, -1))):
        taken += spread(child, share - taken, multiples, takes)
    return taken


def start_set(root, musts, layer_names):
    """Of the MustGather layers the one closest to the nodes."""
    order = ["ClusterTopologyLayer", *layer_names, NODES]
    if not musts:
        return [root]
    lowest = max(musts, key=lambda layer: order.index(layer) if layer in order else -1)
    return [domain for domain in root.walk() if domain.layer == lowest]


def solve(layer_names, places, musts, multiples, desired, offers, existing=None, scores=None):
    """The nodes, one per member; None if there is no place.

    Of domains that compare equal, the one with the lesser path comes first.
    """
    root = tree(layer_names, places)
    fill(root, offers, existing or {}, scores or {}, multiples)
    level = start_set(root, musts, layer_names)
    candidates = []
    while level:
        enough = [domain for domain in level if domain.offer >= desired]
        if enough:
            candidates = enough
        level = [child for domain in enough for child in domain.children]
    candidates.sort(key=lambda domain: [each.name for each in reversed(domain.chain())])
    candidates.sort(key=cmp_to_key(lambda a, b: compared(a, b, 1)))
    for candidate in candidates:
        takes = []
        # D21: in every domain above, the job is all there is of it.
        above = [multiples.get(domain.layer, 1) for domain in candidate.chain()]
        if spread(candidate, desired, multiples, takes) >= desired and not any(desired % each for each in above):
            return [name for name, number in takes for _ in range(number)]
    return None
