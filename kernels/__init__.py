"""Paged attention in Triton: kernels, their float64 reference, checks, an offline report and a benchmark.

    decode        one query per sequence against its paged context, the context cut into splits where that helps
    prefill       chunks of several queries per sequence, causal
    kv_write      new keys and values to their slots
    block_copy    whole blocks from place to place: copy-on-write, swap out and in
    contiguous    the decode kernel on KV without a table, for an honest comparison

On a machine without a GPU the same kernels run in Triton's interpreter: set TRITON_INTERPRET=1 before anything imports
Triton. `python -m kernels` does that by itself.
"""
