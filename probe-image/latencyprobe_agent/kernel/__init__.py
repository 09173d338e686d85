"""The rim towards the kernel: libbpf, rings, clocks, record layouts."""
