"""Parallel rollouts: one session is prepared once, then forked, and each fork tries something else from the same state.

    python examples/rollouts.py [COUNT]         8 forks unless you say otherwise, at most 100

The state is a puzzle on disk and a shell with a function. Each rollout has its own random choices, and a score. Forks share the disk
blocks that they do not change. They need a root daemon.
"""

from __future__ import annotations

import asyncio
import random
import sys

from cove import AsyncCove, AsyncSession

PREPARE = """
cd /workspace && seq 1 30 | shuf --random-source=<(yes) > numbers
score() { awk 'NR > 1 && $1 > last { rising++ } { last = $1 } END { print rising + 0 }' numbers; }
"""
STEPS = 5


async def rollout(session: AsyncSession, number: int) -> tuple[int, int]:
    """One episode: swap two lines a few times, and keep a swap only if it helps."""
    chance = random.Random(number)
    best = int((await session.exec("score", check=True)).output)
    for _ in range(STEPS):
        a, b = sorted(chance.sample(range(1, 31), 2))
        swap = f"awk 'NR==FNR {{ line[FNR]=$0; next }} {{ print FNR=={a} ? line[{b}] : FNR=={b} ? line[{a}] : $0 }}' numbers numbers"
        command = f"cp numbers kept; {swap} > next && mv next numbers; now=$(score); ((now > {best})) || mv kept numbers; echo $now"
        best = max(best, int((await session.exec(command, check=True)).output))
    return best, number


async def main(count: int) -> None:
    async with AsyncCove() as cove, cove.session(labels={"example": "rollouts"}) as origin:
        await origin.exec(PREPARE, check=True)
        start = int((await origin.exec("score", check=True)).output)
        forks = await origin.fork(count)
        try:
            results = await asyncio.gather(*(rollout(fork, number) for number, fork in enumerate(forks)))
        finally:
            await asyncio.gather(*(fork.destroy() for fork in forks))
        assert int((await origin.exec("score", check=True)).output) == start, "the origin is as it was"
    best, number = max(results)
    print(f"started at {start}; {count} rollouts reached {sorted(score for score, _ in results)}")
    print(f"done: rollout {number} was the best, with {best}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
