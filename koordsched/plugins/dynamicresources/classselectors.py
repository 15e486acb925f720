"""Which devices a class selects, for scoring: there a device that cannot be told is no error.

Devices that are equal in all that the selectors read are evaluated once. What an evaluation may cost is bounded more
tightly than where devices are allocated, and a class whose selectors cost too much again and again is given up: nodes
then are scored as those where a selector fails.
"""

from __future__ import annotations

from koordsched.api import resource
from koordsched.plugins.dynamicresources import cel
from koordsched.plugins.dynamicresources.structured import Features, is_converted, read_by

MOST_COST = 5_000
"""Of one evaluation; usual selectors cost less than a hundred. It may be 4 ms."""
MOST_EXCEEDED = 16
"""Evaluations of a class that may go beyond; then no more are made."""

_LOOK = 5
"""Steps that every device counts; it is also entered into the books."""
_EVALUATION = 20
"""Steps that an evaluation counts besides its cost."""
_CLASSES_KEPT = 64
_ANSWERS_KEPT = 1 << 15

_Texts = tuple[str, ...]


class ClassSelectors:
    """Evaluates the selectors of classes. `steps`: how much it has done so far; one or two microseconds each."""

    def __init__(self, features: Features) -> None:
        self._features = cel.Features(features.consumable_capacity, features.list_attributes)
        self._classes: dict[_Texts, _Answers] = {}
        self.steps = 0

    def select(self, device_class: resource.DeviceClass, driver: str, device: resource.Device) -> bool | None:
        """Whether all selectors of the class select the device; None if that cannot be evaluated."""
        self.steps += _LOOK
        texts = tuple(selector.cel.expression for selector in device_class.spec.selectors if selector.cel is not None)
        if not texts:
            return True
        answers = self._classes.get(texts)
        if answers is None:
            if len(self._classes) >= _CLASSES_KEPT:
                self._classes.clear()
            answers = self._classes[texts] = _Answers(texts)
        key = answers.key(driver, device)
        if key in answers.known:
            return answers.known[key]
        if answers.exceeded >= MOST_EXCEEDED:
            return None
        if len(answers.known) >= _ANSWERS_KEPT:
            answers.known.clear()
        found = answers.known[key] = self._evaluate(answers, driver, device)
        return found

    def _evaluate(self, answers: _Answers, driver: str, device: resource.Device) -> bool | None:
        seen = cel.Device.of(
            driver, device.attributes, device.capacity, device.allow_multiple_allocations, self._features
        )
        left = MOST_COST
        try:
            for number in range(len(answers.texts)):
                self.steps += _EVALUATION
                program = self._program(answers, number)
                if program is None:
                    return None
                chosen, cost = program.evaluate_within(seen, left)
                self.steps += cost
                left -= cost
                if not chosen:
                    return False
        except cel.CostExceeded:
            self.steps += left
            answers.exceeded += 1
            return None
        except cel.EvaluationError:
            return None
        return True

    def _program(self, answers: _Answers, number: int) -> cel.Program | None:
        """The program of a selector; None if it is bad, which is found out once."""
        if number not in answers.programs:
            text = answers.texts[number]
            self.steps += len(text)
            try:
                answers.programs[number] = cel.compile(text, self._features)
            except cel.CompileError:
                answers.programs[number] = None
        return answers.programs[number]


class _Answers:
    """What is known of one list of selectors, by what they read of devices."""

    __slots__ = ("_reads", "exceeded", "known", "programs", "texts")

    def __init__(self, texts: _Texts) -> None:
        self.texts = texts
        self.exceeded = 0
        self.programs: dict[int, cel.Program | None] = {}
        self.known: dict[object, bool | None] = {}
        found = read_by(texts)
        self._reads = tuple(sorted(found)) if found is not None else None

    def key(self, driver: str, device: resource.Device) -> object:
        """What an answer depends on: attributes that are read, and those that no selector gets by if they are bad."""
        attributes = device.attributes
        read: object
        if self._reads is None:
            read = tuple(sorted(attributes.items()))
        else:
            get = attributes.get
            read = tuple(
                (get(f"{domain}/{name}"), get(name) if domain == driver else None) for domain, name in self._reads
            )
        converted = tuple((name, each) for name, each in attributes.items() if is_converted(each))
        capacity = tuple(sorted(device.capacity.items())) if device.capacity else ()
        return driver, device.allow_multiple_allocations, read, converted, capacity
