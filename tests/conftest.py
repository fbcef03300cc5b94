"""Fixtures for all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.box import a_box
from tests.leftovers import children_before, pytest_runtest_makereport, pytest_runtest_protocol

__all__ = ["children_before", "pytest_runtest_makereport", "pytest_runtest_protocol"]

# On a box that does other things as well an example may take its time; that is no failure.
settings.register_profile("busy box", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy box")

for name in [name for name in os.environ if name.startswith("NIGHTSHIFT_")]:
    del os.environ[name]  # a test must never work on the box of the person who runs it


# Tests that a shell runs in the background are started deaf to it, and so would be all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def box():
    with a_box() as box:
        yield box
