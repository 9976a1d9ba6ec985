"""The analytical model: arrays of designs and workloads in, arrays of times, energies, areas and costs out."""
