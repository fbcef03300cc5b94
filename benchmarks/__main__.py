"""All measurements, one after the other."""

from benchmarks import batch, chat, idle, nights, queue, scale, start, throughput

for part in (start, scale, queue, idle, throughput, chat, batch, nights):
    part.main()
