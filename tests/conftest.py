"""Fixtures for all tests."""

import pytest

from tests.box import a_box


@pytest.fixture
def box():
    with a_box() as box:
        yield box
