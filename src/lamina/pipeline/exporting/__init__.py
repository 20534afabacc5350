"""How an export is kept right: what it has done (manifest), what is new (pinning), parts, merging, and the commit.

    <to>/<view>/date=2026-11-16/part-00000001-00000.parquet    what readers see
    <to>/_lamina/<view>.json                                   the manifest
    <to>/_lamina/<view>.lock                                   one export of a view at a time
    <to>/_tmp/export.<view>-<random>/                          parts that do not count yet

Readers pass over what begins with an underscore, and need to know nothing of it.
"""
