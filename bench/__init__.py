"""Benchmarks of the kernel, as ratios to the raw machine in the same run. README.md says how to run and read them."""
