"""Hardware that TensorFlow can use."""

import entrypoints.workloads.tensorflow  # noqa: F401 - before TensorFlow itself: it says how much that one prints
