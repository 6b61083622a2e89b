"""The engine: checked rows, passes over them in blocks, Dask, and the kernels that do the arithmetic."""
