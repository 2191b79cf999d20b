"""What the row of a pair may be: known, in a box, in a ball of the l1 norm, in an ellipsoid, or a mixture.

A kind of rows is a file here, which owns their geometry, and a named tuple: the tables of the rows of all layers, their
supports first (``rows``), and memory to work in.  A compiled pass over layers asks :func:`extreme_means` and
:func:`entry_bounds` and does not know whose rows they are: the type of the tuple decides which kernel is compiled in.
"""
