"""The hash functions of `hashlib` without OpenSSL, which takes 4 ms of every client's start to load."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b

        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # another interpreter
        from hashlib import blake2b, sha256

__all__ = ["blake2b", "sha256"]
