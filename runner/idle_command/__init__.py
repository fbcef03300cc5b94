"""`nightshift watch`: one process under the idle rule of seed 003, without queue or bot."""
