"""The garbage collector pauses while numba compiles, and only then."""

from __future__ import annotations

import gc

import pytest
from numba.core import event

import advmdp  # noqa: F401  registers the pause


def compiling():
    return event.trigger_event("numba:compile", data={"dispatcher": None})


def test_the_outermost_compilation_pauses_it():
    assert gc.isenabled()
    with compiling():
        with compiling():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_a_compilation_that_fails():
    with pytest.raises(ZeroDivisionError), compiling():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off():
    gc.disable()
    try:
        with compiling():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
