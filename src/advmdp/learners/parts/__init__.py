"""The parts of learners that are no estimators: loss estimates, steps, predictors, weights of experts.

What is kept of the transitions, and the sets that follow, are in :mod:`advmdp.confidence`.  Parts are small objects
without state of their own: what they know is a value that the learner holds; they build the next one.
"""
