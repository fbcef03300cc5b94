"""All measurements, one after the other."""

from benchmarks import batch, chat, idle, queue, scale, start, throughput

for part in (start, scale, queue, idle, throughput, chat, batch):
    part.main()
