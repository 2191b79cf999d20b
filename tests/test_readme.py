"""The learner table of the README has every learner in its setting; ``python -m tests.test_readme`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from advmdp.registry import learners

README = Path(__file__).resolve().parents[1] / "README.md"
TABLE = re.compile(r"(<!-- learners: .*? -->\n).*?(<!-- /learners -->)", re.DOTALL)
RECALLED = "bound; constants recalled, the source could not be read"
UNREAD = "order of the bound; constants not read in the source"
#: Setting, (feedback, transition), and what a newcomer wants to know of each learner: what it does, what is promised.
GROUPS = {
    "**Start here**": (
        ("bandit", "unknown"),
        {
            "portfolio": ("draws one of several plans and learners per episode, by how they did", "bound, proved here"),
            "planner": ("plans for the average of what was seen: what one writes in an afternoon", "none"),
            "vlsuob-reps-sharp": ("VLSUOB-REPS with everything that keeps its theorem", "bound, proved here"),
        },
    ),
    "**You see what you paid; the dynamics are a mixture of your simulators**": (
        ("bandit", "unknown"),
        {
            "vlsuob-reps": ("VLSUOB-REPS (Li, Zhao and Zhou, 2024), as printed", "the paper's bound"),
            "vlsuob-reps-tight": ("the same with a smaller confidence set", "bound, proved here"),
            "vlsuob-reps-anytime": ("the same without a number of episodes", "bound, proved here"),
            "lsuob-reps": ("its predecessor", "bound, rederived"),
            "vlsuob-reps-bank": ("several step sizes at once, for losses that change", "none proved"),
            "vlsuob-reps-restart": ("forgets at fixed times, for losses that change", "none proved"),
        },
    ),
    "**You see what you paid; nothing is known of the dynamics**": (
        ("bandit", "unknown"),
        {
            "uob-reps": ("counts transitions; the tabular counterpart", RECALLED),
            "bandit-uc-o-reps": ("an earlier one, without bounds on visits", "bound; partly reconstructed"),
            "pomd": ("policy optimisation, optimistic", "order of the bound only"),
            "dilated-bonus": ("policy optimisation with bonuses that look ahead", RECALLED),
            "delayed-uob-reps": ("`uob-reps` for costs that come late", UNREAD),
            "tsallis-reps-optimistic": ("`tsallis-reps` where the dynamics must be learnt", UNREAD),
            "exp3-policies": ("every policy is an arm; tiny problems only", "bound, textbook"),
            "uob-reps-linear": ("for linear MDPs: least squares in place of counts", "bound, proved here"),
            "dilated-bonus-linear": ("for linear MDPs and losses", "none; constants not read in the source"),
        },
    ),
    "**You see only the total of an episode; nothing is known of the dynamics**": (
        ("total", "unknown"),
        {"dilated-bonus-total": ("`dilated-bonus` with the total in place of the costs that follow", UNREAD)},
    ),
    "**You see the costs of everything; the dynamics are unknown**": (
        ("full", "unknown"),
        {
            "vls-o-reps": ("mirror descent, for mixtures of simulators", "bound, proved here"),
            "occupancy-ensemble": ("several step sizes at once, for costs that change", "bound; radii recalled"),
            "oppo": ("policy optimisation for mixtures of simulators", "bound; constants derived here"),
            "powers": ("the same, weighing what is certain more", RECALLED),
            "powers-dynamic": ("the same, for costs that change; told how much", "bound; radii recalled"),
            "hf-o2ps": (
                "for long episodes; needs some ten million steps to show anything",
                "order of the bound only; constants not read in the source",
            ),
            "ucrl-vtr": ("plans greedily; for costs that are drawn, not chosen", "none for costs that are chosen"),
            "uc-o-reps": ("counts transitions", "bound, rederived"),
            "oppo-linear": ("policy optimisation for linear MDPs", "bound; constants derived here"),
        },
    ),
    "**The dynamics are known**; all costs seen": (
        ("full", "known"),
        {
            "o-reps": ("mirror descent over how often each action is taken", "bound, rederived"),
            "do-reps": ("several step sizes at once, for costs that change", "bound, proved here"),
            "mdp-e": ("exponential weights in every state", "bound, rederived"),
            "lazy-fpl": ("the best policy for perturbed costs, in blocks", "bound; constants derived here"),
            "ftl": ("the best policy so far", "none: fails where costs alternate"),
            "hindsight": ("told all costs in advance: what others are compared with", "zero regret, by definition"),
        },
    ),
    "**The dynamics are known**; you see what you paid": (
        ("bandit", "known"),
        {
            "o-reps-bandit": ("mirror descent over how often each action is taken", "bound, rederived"),
            "q-reps": ("the same for losses linear in features of pairs", "bound; constants derived here"),
            "mdp-linexp3": ("exponential weights for such losses", "bound; constants derived here"),
            "tsallis-reps": ("another regulariser, without a number of episodes", "bound; constants derived here"),
        },
    ),
    "**To compare with**": (("bandit", "unknown"), {"uniform": ("every action alike", "none")}),
}  # fmt: skip


def with_current_table(text: str) -> str:
    rows = ["| learner | what it does | what is promised |", "|---|---|---|"]
    for title, (_, entries) in GROUPS.items():
        rows.append(f"| {title} | | |")
        rows += [f"| `{name}` | {what} | {promise} |" for name, (what, promise) in entries.items()]
    return TABLE.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[2], text)


def test_the_learner_table_is_current():
    text = README.read_text(encoding="utf-8")
    assert TABLE.search(text)
    assert text == with_current_table(text), "run `python -m tests.test_readme`"


def test_every_learner_is_in_the_group_of_its_setting():
    listed = [name for _, entries in GROUPS.values() for name in entries]
    assert sorted(listed) == learners.names()
    for setting, entries in GROUPS.values():
        for name in entries:
            entry = learners.get(name)
            assert (entry.feedback, entry.transition) == setting, name


def test_it_is_said_of_every_learner_without_a_bound():
    """What the registry calls unproved has no bound in the table, and the other way round."""
    promises = {name: promise for _, entries in GROUPS.values() for name, (_, promise) in entries.items()}
    unproved = {
        name
        for name in learners.names()
        if "no bound" in learners.get(name).status or "no guarantee" in learners.get(name).status
    }
    assert unproved == {name for name, promise in promises.items() if promise.startswith("none")} - {
        "uniform", "ftl", "ucrl-vtr",  # linear regret, which their status shows by what it was verified against
    }  # fmt: skip


if __name__ == "__main__":
    README.write_text(with_current_table(README.read_text(encoding="utf-8")), encoding="utf-8")
