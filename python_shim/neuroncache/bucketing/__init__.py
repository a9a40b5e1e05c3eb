"""Graphs with symbolic sizes on a few graphs of fixed, padded sizes: capture, plans, buckets, dispatch.

`plan` reads the plans of docs/padding.md and puts buckets in. Everything here that is private to torch is asked for by
`neuroncache.compat`.
"""
