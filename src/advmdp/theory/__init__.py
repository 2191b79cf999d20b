"""What is proved, as code: regret bounds, executable lemmas, and the regret decomposition along a run."""
