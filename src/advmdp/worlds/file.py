"""A world of your own, out of a file that :meth:`advmdp.LayeredMDP.save` wrote.

It stands for whatever you saved: build the kernels or features once, in any way, and use the result by name in
experiments.  Names of states and natural losses are saved with it; nothing in the file can run code.
"""

from __future__ import annotations

import os

from advmdp.layered import LayeredMDP, load_mdp
from advmdp.registry import register_world


@register_world("file")
def file(*, path: str | os.PathLike[str]) -> LayeredMDP:
    """A world that was saved to a file by ``world.save(path)``.

    Parameters
    ----------
    path
        Of the file.
    """
    return load_mdp(path)
