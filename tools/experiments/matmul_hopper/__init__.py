"""Matrix products for Hopper's tensor cores (wgmma, TMA), beside cuBLAS; README.md has the
results. Run from tools/experiments: `python -m matmul_hopper.sweep`."""
