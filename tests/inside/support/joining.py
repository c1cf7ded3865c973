"""One batch of several in TensorFlow, for calls that do several updates."""

from __future__ import annotations

import tensorflow as tf


def joined(batches):
    """All samples of some batches in a row."""
    inputs, targets = (tf.concat([getattr(each, name) for each in batches], 0) for name in ("inputs", "targets"))
    return batches[0]._replace(inputs=inputs, targets=targets)
