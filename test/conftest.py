"""The option of all Python tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run the tests marked full")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: slow; runs with --full only")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="slow; runs with --full"))
