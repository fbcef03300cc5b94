"""GPUs: one gateway to NVML, the sampler process that owns it, a simulated driver behind the same binding."""
