"""Every learner plays as it did before it was composed of parts: runs recorded at advmdp 0.1."""

import numpy as np
import pytest

from tests.learners import recorded

# Steps are certified to 1e-6 in log q; where within that an iteration ends depends on how the processor rounds, and a
# run adds up what its steps leave.  A learner that differs in anything else soon draws other actions.
TOLERANCE = 1e-5

CELLS = {name: arguments for name, *arguments in recorded.cells()}


@pytest.fixture(scope="module")
def before():
    return np.load(recorded.FILE)


@pytest.mark.parametrize("name", CELLS)
def test_a_run_gives_what_it_gave(name, before):
    np.testing.assert_allclose(recorded.play(*CELLS[name]), before[name], rtol=0.0, atol=TOLERANCE)
