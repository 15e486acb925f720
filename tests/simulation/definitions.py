"""The kinds that the API server of a world has beside Kubernetes' own, as the manifests define them."""

from functools import cache
from pathlib import Path

from tests.yamlfiles import documents

FOLDER = Path(__file__).parents[2] / "manifests" / "crds"


@cache
def definitions(name):
    """The CustomResourceDefinitions in a file, without its ending. They are read once for all worlds: insert copies."""
    found = documents(FOLDER / f"{name}.yaml")
    return tuple(each for each in found if each["kind"] == "CustomResourceDefinition")
