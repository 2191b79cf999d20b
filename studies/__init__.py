"""The experiments that the paper should have had: ``python -m studies``; results and text are in docs/study."""
