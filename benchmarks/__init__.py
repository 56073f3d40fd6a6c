"""Benchmarks: `python -m benchmarks.NAME`. Each compares with a peer in the same run."""
