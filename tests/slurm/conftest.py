"""The tests in `inside` are collected only in a cluster."""

import os

from tests.slurm.cluster import INSIDE

collect_ignore_glob = [] if INSIDE in os.environ else ["inside/*"]
