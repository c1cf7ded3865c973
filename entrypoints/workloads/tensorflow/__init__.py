"""Workloads in TensorFlow: plain operations and variables, so that one code runs on every version since 2.6.

Keras is left out: its version 3 broke with what 2.6 had.
"""

import os

# TensorFlow prints the build of its kernels to standard error; warnings and errors stay. Read when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
