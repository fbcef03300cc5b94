"""All measurements, one after the other."""

from benchmarks import (
    batch,
    chat,
    choose,
    commands,
    idle,
    long_queue,
    nights,
    progress,
    queue,
    scale,
    start,
    throughput,
)

for part in (start, commands, scale, queue, long_queue, choose, idle, progress, throughput, chat, batch, nights):
    part.main()
