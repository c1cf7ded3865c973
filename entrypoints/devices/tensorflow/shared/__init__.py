"""What several kinds of device have in common in TensorFlow."""
