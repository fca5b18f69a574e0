"""Numba kernels: arrays in, arrays out, one algorithm a file. They import only `_jit` and each other."""
