"""Tests that run inside the cluster, as an ordinary account. `test_on_a_cluster.py` starts them."""
