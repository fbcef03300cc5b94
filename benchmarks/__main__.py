"""All measurements, one after the other."""

from benchmarks import batch, chat, choose, idle, long_queue, nights, progress, queue, scale, start, throughput

for part in (start, scale, queue, long_queue, choose, idle, progress, throughput, chat, batch, nights):
    part.main()
