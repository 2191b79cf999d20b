"""Every error that a caller can cause; those of bad input are ``ValueError``s whose message says what is wrong,
where, and what would be right."""

from __future__ import annotations


class InvalidMDPError(ValueError):
    """A world, model or table of kernels, features or losses that is not what it claims to be."""


class InvalidEpisodeError(ValueError):
    """An episode that a learner cannot have produced; the learner is left as it was."""


class InvalidSpecError(ValueError):
    """An unknown name or option, or a combination that cannot work."""


class CorruptCheckpointError(ValueError):
    """A file that is truncated, altered, or not one of ours."""


class ConcurrentUseError(RuntimeError):
    """One learner used by two threads at once; it is left as the first of them makes it."""


class StoreBusyError(RuntimeError):
    """Somebody else is writing to the directory of an experiment."""
