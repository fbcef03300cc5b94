"""Fixtures for all tests."""

import pytest
from hypothesis import HealthCheck, settings

from tests.box import a_box

# On a box that does other things as well an example may take its time; that is no failure.
settings.register_profile("busy box", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy box")


@pytest.fixture
def box():
    with a_box() as box:
        yield box
