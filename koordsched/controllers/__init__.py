"""Controllers: loops that write objects, while this scheduler leads and only then.

A controller belongs to a plugin and is started when a profile enables it. It reads the cluster state and the plugin's
own books, and writes through protocols declared here; it knows nothing of queues, cycles or the API client.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.controllers.controller import ControllerFactory
from koordsched.controllers.elasticquota.loops import ElasticQuotaController

IN_TREE: Mapping[str, ControllerFactory] = {"ElasticQuota": ElasticQuotaController}
"""Plugin -> what builds its controller."""
