"""Sources in a simulation: random systems to read, and random worlds from a seed."""

from __future__ import annotations

from functools import partial
from random import Random

from tailrace.source.reader import Split, Until
from tailrace.testing.faults import Faults
from tailrace.testing.sources.script import ScriptedBatch, SourceScript
from tailrace.testing.sources.world import SourceWorld

SECONDS = 60.0
FAULTY_S = 40.0
"""For so long things go wrong; in the rest of the time all must come right."""


class _Drawn:
    """A split that is being written down."""

    def __init__(self, split: Split, start_s: float, end_s: float) -> None:
        self.split = split
        self.start_s = start_s
        self.end_s = end_s
        self.children: list[Split] = []
        """Those that it reports in its last batch."""
        self.early: list[Split] = []
        """Those that it reports before."""
        self.awaited = False
        """True if a merge is decided: it ends as others say."""
        self.finished = True


class ScriptDrawer:
    """Draws a system whose splits split, merge, end, or last for ever, until there are `most`.

    Its data comes into being in the first `seconds`; all is there at once if they are 0.
    """

    def __init__(self, random: Random, most: int, seconds: float) -> None:
        self._random = random
        self._most = most
        self._seconds = seconds
        self._drawn: dict[str, _Drawn] = {}
        self._open: dict[str, _Drawn] = {}
        self._kept: list[_Drawn] = []

    def draw(self) -> SourceScript:
        """Return a system."""
        random = self._random
        first = [self._add((), 0.0) for _ in range(random.randint(1, 4))]
        if random.random() < 0.4:
            first += [self._add((), 0.0, bound="files") for _ in range(random.randint(1, 3))]
        if random.random() < 0.3:
            first.append(self._add((), 0.0, kept=True))
        while self._open:
            self._end(min(self._open.values(), key=lambda each: each.end_s))
        batches = {each: self._batches(drawn) for each, drawn in self._drawn.items()}
        return SourceScript([each.split for each in first], batches)

    def _add(
        self,
        follows: tuple[str, ...],
        start_s: float,
        *,
        bound: str | None = None,
        kept: bool = False,
    ) -> _Drawn:
        split = Split(f"s{len(self._drawn)}", follows=follows, bound=bound, kept=kept)
        lasts_s = self._random.choice([0.0, 0.5, 3.0, 10.0]) if self._seconds else 0.0
        drawn = _Drawn(split, start_s, start_s + lasts_s * self._random.random())
        self._drawn[split.id] = self._open[split.id] = drawn
        if kept:
            self._kept.append(drawn)
        return drawn

    def _end(self, drawn: _Drawn) -> None:
        """Decide what comes after a split."""
        random = self._random
        del self._open[drawn.split.id]
        if drawn.awaited:
            return
        late = drawn.end_s > self._seconds or len(self._drawn) >= self._most
        others = [each for each in self._open.values() if not each.awaited]
        fate = random.random()
        if late:
            drawn.finished = drawn.split.kept or fate < 0.5
        elif fate < 0.4:
            for _ in range(random.choice([1, 2, 2, 3, 8])):
                bound = drawn.split.bound if random.random() < 0.7 else None
                follows: tuple[str, ...] = (drawn.split.id,)
                if self._kept and random.random() < 0.2:
                    follows = tuple(sorted({drawn.split.id, self._kept[0].split.id}))
                drawn.children.append(self._add(follows, drawn.end_s, bound=bound).split)
        elif fate < 0.65 and others:
            self._merge([drawn, *random.sample(others, min(len(others), random.choice([1, 1, 2])))])
        elif fate < 0.75 and others:
            self._merge_unmet(drawn, random.choice(others))
        elif fate < 0.85:
            drawn.early.append(self._add((), drawn.start_s).split)

    def _merge(self, parents: list[_Drawn]) -> None:
        """Have splits report one child, which starts when all of them are finished."""
        end_s = max(each.end_s for each in parents)
        child = self._add(tuple(each.split.id for each in parents), end_s)
        for each in parents:
            each.awaited = True
            each.children.append(child.split)

    def _merge_unmet(self, drawn: _Drawn, other: _Drawn) -> None:
        """Have a split report a child that also follows one that only `other` will report."""
        other.awaited = True
        unmet = self._add((other.split.id,), other.end_s)
        other.children.append(unmet.split)
        self._merge([drawn, unmet])

    def _batches(self, drawn: _Drawn) -> tuple[ScriptedBatch, ...]:
        random = self._random
        count = random.choice([1, 1, 2, 3, 6])
        times = sorted(random.uniform(drawn.start_s, drawn.end_s) for _ in range(count))
        reporting = random.randrange(count)
        finished = drawn.finished and (drawn.split.kept or random.random() > 0.03)
        return tuple(
            ScriptedBatch(
                random.choice([0, 1, 1, 3]),
                (
                    *(drawn.early if number == reporting else ()),
                    *(drawn.children if number == count - 1 else ()),
                ),
                at_s,
                ends=random.random() < 0.3,
                finished=finished and number == count - 1,
            )
            for number, at_s in enumerate(times)
        )


class SourceTrial:
    """A world that has not run yet."""

    def __init__(self, world: SourceWorld, faults: Faults) -> None:
        self.world = world
        self.faults = faults

    def run(self) -> None:
        """Run forty seconds of faults. Then all must be read within a stated time."""
        world = self.world
        world.run(FAULTY_S)
        world.heal()
        world.run(SECONDS - FAULTY_S)
        world.run_until_read()


def trial(seed: int) -> SourceTrial:
    """Return processes whose tasks read a random system, and faults."""
    random = Random(f"source trial {seed}")
    faults = Faults.drawn(random)
    most = random.choice([4, 15, 60])
    until = random.choice([Until.STOPPED, Until.STOPPED, Until.NOW])
    seconds = 0.0 if until is Until.NOW else FAULTY_S * random.choice([0.2, 1.0])
    script = ScriptDrawer(random, most, seconds).draw()
    world = SourceWorld(seed, script, faults, until=until, partitions=random.choice([1, 3]))
    world.reader_failure = random.choice([0.0, 0.0, 0.05])
    for name in "abcdefgh"[: random.choice([1, 2, 3, 4, 8])]:
        process = world.task_process(name)
        world.at(random.choice([0.0, random.uniform(0, FAULTY_S)]), process.read)
        if random.random() < 0.3:
            world.at(random.uniform(1, FAULTY_S), process.leave)
            world.at(random.uniform(1, FAULTY_S), process.read)
    world.at(FAULTY_S, partial(world.task_process("a").read))
    world.options.pausing = random.choice([0.0, 0.02, 0.1])
    return SourceTrial(world, faults)


def run(seed: int) -> SourceTrial:
    """Run a trial of a seed."""
    made = trial(seed)
    made.run()
    return made
