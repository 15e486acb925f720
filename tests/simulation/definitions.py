"""The kinds that the API server of a world has beside Kubernetes' own, as the manifests define them."""

from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "manifests" / "crds"


@cache
def definitions(name):
    """The CustomResourceDefinitions in a file, without its ending. They are read once for all worlds: insert copies."""
    documents = yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
    return tuple(each for each in documents if each and each["kind"] == "CustomResourceDefinition")
