"""`nightshift watch`: runs one command under the idle rule of gpu_idle_timeout, without queue or bot."""
