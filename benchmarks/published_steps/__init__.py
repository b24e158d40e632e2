"""Programs with the figures of published before-and-after measurements, and what hpuprof says of their recordings."""
