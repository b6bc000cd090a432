"""A plugin for pytest (`-p tests.unit.gateway.as_python`): sources run, whatever is compiled."""

import sys

import services.gateway
from services.gateway.copies import MODULES, PACKAGE, Copy

sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Copy)]
for module in MODULES:
    sys.modules.pop(f"{PACKAGE}.{module}", None)
services.gateway.WHY_NOT_COMPILED = "a test has them run as Python"
