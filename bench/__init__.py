"""Benchmarks: Seriatim beside its peers, in one run, on the same broker and the same records. Ratios, not promises."""
