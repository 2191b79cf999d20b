"""After a warm-up no update compiles anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

import advmdp

#: In a fresh interpreter, where nothing else has compiled: how many versions of kernels there are, before and after.
CODE = """import gc
import numpy as np
import advmdp
from numba.core.dispatcher import Dispatcher


def versions():
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return sum(len(each.signatures) for each in found if each.py_func.__module__.startswith("advmdp"))


def use(name, world, problem):
    rng = np.random.default_rng(0)
    learner = advmdp.make_learner(name, problem, 30)
    losses = [rng.random((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    for k in range(20):
        episode = advmdp.play(world, learner.policy, losses, rng, index=k)
        learner.act(0, 0)
        seen = np.where(np.arange(world.horizon) == k % 5, np.nan, episode.losses)
        learner.update(advmdp.Episode(episode.states, episode.actions, None if k % 4 == 1 else seen, index=k))
        if k % 4 == 2:
            learner.tell(k - 1, last.losses)
        last = episode
    learner.observe_transitions([episode.states], [episode.actions])
    learner.misspecification()


before = versions()
advmdp.warm_up(*{names!r})
warm = versions()
for world in (advmdp.make_world("inventory"), advmdp.make_world("grid"), advmdp.make_world("random-mixture")):
    for name in {names!r} or ("portfolio", "planner", "vlsuob-reps-tight"):
        use(name, world, world.model)
        if name != "vlsuob-reps-tight":
            use(name, world, advmdp.TabularModel(world.layer_sizes, world.n_actions))
print(before, warm, versions())
"""


@pytest.mark.parametrize("names", [(), ("uob-reps",)], ids=["the default", "another"])
def test_no_update_compiles_anything_afterwards(names):
    code = CODE.replace("{names!r}", repr(names))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    before, warm, after = map(int, done.stdout.split())
    assert before < warm == after
    for name in names or ("portfolio", "planner", "vlsuob-reps-tight"):
        assert f"advmdp: warming up {name} (" in done.stderr


def test_every_learner_can_be_warmed_up(caplog):
    caplog.set_level("INFO", logger="advmdp")
    quick = ("o-reps", "ftl", "hind", "exp3", "q-reps", "oppo-")
    names = [name for name in advmdp.learners.learners.names() if name.startswith(quick)]
    advmdp.warm_up(*names)
    assert sum("warming up" in message for message in caplog.messages) == len(names)


def test_names_may_come_in_a_list(caplog):
    caplog.set_level("INFO", logger="advmdp")
    advmdp.warm_up(["uniform", "ftl"])
    assert [message.split()[2] for message in caplog.messages if "warming up" in message] == ["uniform", "ftl"]


def test_an_unknown_name_is_refused_before_any_work(caplog):
    caplog.set_level("INFO", logger="advmdp")
    with pytest.raises(advmdp.InvalidSpecError, match="did you mean 'portfolio'"):
        advmdp.warm_up("uniform", "portfoilo")
    assert not caplog.messages
