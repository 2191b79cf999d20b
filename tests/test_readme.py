"""The learner table of the README says what the registry says; ``python -m tests.test_readme`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from advmdp.registry import learners

README = Path(__file__).resolve().parents[1] / "README.md"
TABLE = re.compile(r"(<!-- learners: .*? -->\n).*?(<!-- /learners -->)", re.DOTALL)


def with_current_table(text: str) -> str:
    rows = ["| name | losses seen | transition | status: verified against |", "|---|---|---|---|"]
    for name in learners.names():
        entry = learners.get(name)
        seen = {"bandit": "visited pairs", "full": "all pairs"}[entry.feedback]
        rows.append(f"| `{name}` | {seen} | {entry.transition} | {entry.status} |")
    return TABLE.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[2], text)


def test_the_learner_table_is_current():
    text = README.read_text(encoding="utf-8")
    assert TABLE.search(text)
    assert text == with_current_table(text), "run `python -m tests.test_readme`"


if __name__ == "__main__":
    README.write_text(with_current_table(README.read_text(encoding="utf-8")), encoding="utf-8")
