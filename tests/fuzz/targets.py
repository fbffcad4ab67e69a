"""What is fuzzed: a strategy and a check. A short, repeatable run under pytest; a long one by `make fuzz`."""

from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

TARGETS: list["Target"] = []
_CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


class Target:
    """`check` must raise nothing, whatever `strategy` draws. It gives the number of inputs that it made of the draw."""

    def __init__(self, check: Callable[[Any], int], strategy: SearchStrategy[Any]) -> None:
        self.name = check.__name__
        self.executions = 0
        self._check = check
        self._strategy = strategy

    def test(self, examples: int) -> Callable[[], None]:
        """The same draws each time."""
        return self._run(settings(max_examples=examples, derandomize=True, deadline=None, suppress_health_check=_CALM))

    def explore(self, seed: int, examples: int) -> None:
        """Other draws than ever before; what fails is shrunk, and printed with the exception."""
        phases = (Phase.generate, Phase.shrink)
        chosen = settings(
            max_examples=examples, database=None, deadline=None, suppress_health_check=_CALM, phases=phases
        )
        hypothesis.seed(seed)(self._run(chosen))()

    def _run(self, chosen: settings) -> Callable[[], None]:
        def run(drawn: Any) -> None:
            self.executions += self._check(drawn)

        run.__name__ = run.__qualname__ = self.name
        test: Callable[[], None] = chosen(hypothesis.given(self._strategy)(run))
        test.__doc__ = self._check.__doc__
        return test


def fuzz(strategy: SearchStrategy[T], *, examples: int) -> Callable[[Callable[[T], int]], Callable[[], None]]:
    """Makes a test of a check; `examples` is its share of `make test`."""

    def decorate(check: Callable[[T], int]) -> Callable[[], None]:
        target = Target(check, strategy)
        TARGETS.append(target)
        return target.test(examples)

    return decorate
