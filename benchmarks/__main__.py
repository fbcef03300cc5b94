"""All measurements, one after the other."""

from benchmarks import idle, scale, start, throughput

for part in (start, scale, idle, throughput):
    part.main()
