"""GPUs: the gateway to NVML, the sampler process that owns it, and a simulated driver behind the same binding."""
