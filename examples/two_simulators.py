"""Two simulators of one machine, reality somewhere between them: `from_simulators`, then ask and tell.

A machine wears from 0 (new) to 3 (worn out) over a week of six shifts.  Each shift it runs, or is serviced.  The
maker's simulator believes in mild wear, the workshop's in rough wear; each is only a function that draws a next state.

    python examples/two_simulators.py
"""

from __future__ import annotations

import numpy as np

import advmdp

RUN, SERVICE = 0, 1
LAYERS = (1, 4, 4, 4, 4, 4, 1)  # new at first; then wear 0 to 3; the week ends


def makers(layer: int, wear: int, action: int, rng: np.random.Generator) -> int:
    """Wears by one with probability 0.2; a service always makes it new."""
    return 0 if action == SERVICE else min(3, wear + int(rng.random() < 0.2))


def workshops(layer: int, wear: int, action: int, rng: np.random.Generator) -> int:
    """Wears by one with probability 0.8, and a service sometimes fails."""
    if action == SERVICE:
        return 0 if rng.random() < 0.7 else wear
    return min(3, wear + int(rng.random() < 0.8))


def reality(layer: int, wear: int, action: int, rng: np.random.Generator) -> int:
    """What nobody knows: 30% of shifts are as the maker says, the others as the workshop does."""
    return (makers if rng.random() < 0.3 else workshops)(layer, wear, action, rng)


def cost(week: int, wear: int, action: int) -> float:
    """Scrap grows with wear; a service costs a shift, more in the weeks when spare parts are scarce."""
    scarce = 0.3 if (week // 25) % 2 else 0.0
    return 0.4 + scarce if action == SERVICE else (0.0, 0.1, 0.5, 1.0)[wear]


def main(weeks: int = 800) -> list[float]:
    """Mean cost per week, in each quarter of the run."""
    model = advmdp.LinearMixtureModel.from_simulators([makers, workshops], LAYERS, n_actions=2, samples=500, seed=0)
    learner = advmdp.make_learner("vlsuob-reps-tight", model, weeks, seed=0)
    rng = np.random.default_rng(1)
    totals = []
    for week in range(weeks):
        wear, states, actions, losses = 0, [], [], []
        for shift in range(len(LAYERS) - 1):
            action = learner.act(shift, wear)  # ask
            states.append(wear)
            actions.append(action)
            losses.append(cost(week, wear, action))
            wear = reality(shift, wear, action, rng)
        learner.update(advmdp.Episode(states, actions, losses, index=week))  # tell
        totals.append(sum(losses))
    quarters = [float(np.mean(part)) for part in np.array_split(totals, 4)]
    print("mean cost per week, by quarter:", ", ".join(f"{value:.2f}" for value in quarters))
    return quarters


if __name__ == "__main__":
    main()
