"""All measurements, one after the other."""

from benchmarks import chat, idle, scale, start, throughput

for part in (start, scale, idle, throughput, chat):
    part.main()
