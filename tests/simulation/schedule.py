"""Who acts next: drivers in threads of which one at a time holds the baton, and one seeded source of all chance.

A driver that calls `step` may be killed there, or made to wait while others and the world go on. Nothing else decides
what happens when, so a seed tells the whole story.
"""

import threading
import zlib
from collections.abc import Callable
from random import Random
from typing import Final

STEPS_MAX: Final = 20_000  # of one seed: beyond it something goes round in circles


class Killed(BaseException):
    """A power cut for one driver. Not an `Exception`: the product must not be able to catch it."""


class Endless(Exception):
    pass


class Trace:
    """What happened, in order: printed when wanted, and always summed up, to prove that a replay is one."""

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self._show = show
        self.digest = 0

    def __call__(self, who: str, what: str) -> None:
        self.digest = zlib.crc32(f"{who} {what}".encode(), self.digest)
        if self._show is not None:
            self._show(f"{who:>10}  {what}")


class Actor:
    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = threading.Semaphore(0)
        self.asleep_until = 0
        self.error: BaseException | None = None


class Schedule:
    def __init__(self, chance: Random, trace: Trace) -> None:
        self.chance = chance
        self.trace = trace
        self.kill_rate = self.switch_rate = 0.0
        self.steps = self.kills = 0
        self.alive: list[Actor] = []
        self.tick: Callable[[], None] = lambda: None  # what the world does while drivers work
        self._started = 0
        self._ending = False
        self._back = threading.Semaphore(0)
        self._current: Actor | None = None
        self._later: list[tuple[int, str, Callable[[], None]]] = []

    @property
    def who(self) -> str:
        return "world" if self._current is None else self._current.name

    def start(self, life: Callable[[], None]) -> None:
        """Another driver; it begins when its turn comes."""
        self._started += 1
        actor = Actor(f"driver-{self._started}")
        self.alive.append(actor)
        threading.Thread(target=self._body, args=(actor, life), daemon=True).start()

    def run(self) -> None:
        """Until no driver is left. Raises what went wrong in one of them."""
        while self.alive:
            awake = [actor for actor in self.alive if actor.asleep_until <= self.steps] or self.alive
            actor = self.chance.choice(awake)
            self._give_turn(actor)
            if actor.error is not None:
                self._end()
                raise actor.error
        self._current = None

    def step(self, what: str) -> None:
        """A moment at which anything may happen. Called by the driver that holds the baton."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Endless(f"no end after {STEPS_MAX} steps")
        self.trace(self.who, what)
        self._carry_out_later()
        self.tick()
        if self.kill_rate and self.chance.random() < self.kill_rate:
            self.trace(self.who, "is killed")
            self.kills += 1
            raise Killed
        if len(self.alive) > 1 and self.chance.random() < self.switch_rate:
            self._pause()

    def slow(self) -> None:
        """The call at hand takes its time: the world and the other drivers go on meanwhile."""
        ticks = self.chance.choice((1, 5, 30))
        self.trace(self.who, f"waits for {ticks} steps")
        for _ in range(ticks):
            self.tick()
        if len(self.alive) > 1:
            assert self._current is not None
            self._current.asleep_until = self.steps + ticks
            self._pause()

    def later(self, what: str, effect: Callable[[], None]) -> None:
        """A request whose answer was not waited for, and which takes effect all the same."""
        self._later.append((self.steps + self.chance.choice((1, 3, 10, 40)), what, effect))

    def _carry_out_later(self, *, all_of_it: bool = False) -> None:
        due = [late for late in self._later if late[0] <= self.steps or all_of_it]
        for late in due:
            self._later.remove(late)
            self.trace("late", late[1])
            late[2]()

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.kill_rate = 0.0
        self._carry_out_later(all_of_it=True)

    def _pause(self) -> None:
        actor = self._current
        assert actor is not None, "only a driver pauses"
        self._back.release()
        actor.turn.acquire()
        if self._ending:
            raise Killed

    def _body(self, actor: Actor, life: Callable[[], None]) -> None:
        actor.turn.acquire()
        try:
            if not self._ending:
                life()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 (whatever it is, `run` raises it again)
            actor.error = error
        finally:
            self.alive.remove(actor)
            self._back.release()

    def _give_turn(self, actor: Actor) -> None:
        self._current = actor
        actor.turn.release()
        self._back.acquire()

    def _end(self) -> None:
        """Let the other threads unwind: something has gone wrong, and the seed is over."""
        self._ending = True
        for actor in list(self.alive):
            self._give_turn(actor)
