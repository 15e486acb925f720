"""Expressions that select devices: Common Expression Language, in the environment of dra spec 3.6.

    program = compile(selector.cel.expression, features)             # CompileError
    device = Device.of(driver, attributes, capacity, shared, features)  # once per device, never raises
    program.evaluate(device, expired)                                # a bool, or EvaluationError

* `compile(text, features)` keeps programs (not errors) in a bounded LRU by text and features, so calling it again is
  cheap. Raises CompileError; its text is what follows `CEL compile error: ` upstream.
* `Program.evaluate(device, expired=None)`: whether the device is selected. Raises EvaluationError; its text is what
  follows `CEL runtime error: `. `expired` is called now and then during evaluation and ends it when it says True (the
  text is then `operation interrupted`).
* `Program.evaluate_within(device, most)`: the same for a lower cost than usual, and what it cost.
* `Device` holds a device's values as expressions see them. Conversion errors (a version that is none, a list while
  lists are off) are kept, and raised by each evaluation.
* `Features`: the feature gates that change the environment.

The way of an expression is `tokens`, `parser` (with `macros`) to `syntax`; `checker` (`types`, `unification`) and
`validation`; `planner` (`calls`, `access`, `comprehensions`) to closures, which `program` runs with a `frame`.
`environment` lists the functions, which are in modules by topic. Errors and costs are cel-go's.
"""

from koordsched.plugins.dynamicresources.cel.device import Device
from koordsched.plugins.dynamicresources.cel.environment import Features
from koordsched.plugins.dynamicresources.cel.errors import CompileError, CostExceeded, EvaluationError, Interrupted
from koordsched.plugins.dynamicresources.cel.program import Program, compile

__all__ = ["CompileError", "CostExceeded", "Device", "EvaluationError", "Features", "Interrupted", "Program", "compile"]
