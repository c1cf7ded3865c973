"""What all tests share."""

import signal

import pytest

# A shell starts its background jobs with SIGINT ignored, and whatever they start inherits that; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
pytest.register_assert_rewrite("killing", "program")  # helpers whose failed assertions show values
