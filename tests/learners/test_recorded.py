"""Every learner plays as it did before it was composed of parts: runs recorded at advmdp 0.1."""

import numpy as np
import pytest

from tests.learners import recorded

CELLS = {name: arguments for name, *arguments in recorded.cells()}


@pytest.fixture(scope="module")
def before():
    return np.load(recorded.FILE)


@pytest.mark.parametrize("name", CELLS)
def test_a_run_gives_what_it_gave(name, before):
    np.testing.assert_allclose(recorded.play(*CELLS[name]), before[name], rtol=0.0, atol=1e-9)
