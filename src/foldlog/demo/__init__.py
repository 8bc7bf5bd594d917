"""The demo: a shop's payments in a served log, folded into four views by Spark, while things are killed around them.

Every process is real, and every claim of the checklist at the end is counted from what is on disk. To follow it:
`run.py` sets the stage and takes it down, `story.py` has the acts in their order, `claims.py` what is proven.
Nothing here is imported by the rest of the package but by `foldlog demo`.
"""
