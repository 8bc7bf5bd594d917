"""The demo: a shop's payments in a served log, folded into four views by Spark, while processes are killed.

Every process is real, and every claim of the checklist at the end is counted from what is on disk. To follow it:
`run.py` starts and ends everything, `story.py` has the acts in order, `claims.py` the checklist. Only `foldlog demo`
imports anything from here.
"""
