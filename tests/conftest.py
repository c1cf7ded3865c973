"""What all tests share."""

import signal

import pytest
from properties import load_profile

# A shell starts its background jobs with SIGINT ignored, and whatever they start inherits that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
load_profile()
pytest.register_assert_rewrite("killing", "program")  # helpers whose failed assertions show values
