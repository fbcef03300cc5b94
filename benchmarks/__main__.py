"""All measurements, one after the other."""

from benchmarks import batch, chat, idle, scale, start, throughput

for part in (start, scale, idle, throughput, chat, batch):
    part.main()
