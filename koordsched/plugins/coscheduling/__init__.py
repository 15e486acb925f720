"""Coscheduling: gangs, which are placed as a whole or not at all (coscheduling spec).

* `args` the plugin's arguments; `kinds` the PodGroup, labels and annotations.
* `options` says which gang a pod belongs to, and what a gang asks for; `podfacts` keeps that for pods on nodes.
"""

from koordsched.plugins.coscheduling.kinds import POD_GROUPS as POD_GROUPS  # registered by being defined
