"""GPUFragmentation: places pods with GPUs so that most of the GPUs stay usable (no plugin of upstream's).

* `worth` what a part of a GPU is worth; `values` what the free part of a node is worth; `policy` scores and GPUs.
* `fleet` the arrays that these read. None of the four depends on the cluster.
* `seen` counts what pods ask for; `books` reads columns and decides when values are worked out anew; `plugin` scores.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.gpufragmentation.args import GPUFragmentationArgs, validate
from koordsched.plugins.gpufragmentation.plugin import GPUFragmentation

DECLARATION = Declaration(
    name=GPUFragmentation.name,
    factory=GPUFragmentation,
    entry=entry("score", ArgsKind(GPUFragmentationArgs, validate=validate)),
)
