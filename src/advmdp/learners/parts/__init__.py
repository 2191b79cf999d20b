"""What learners are put together from: values and pure functions, each usable (and tested) by itself."""
