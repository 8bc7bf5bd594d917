"""What the log withstands, counted: every fault class in turn, bounded in time, and the page that says what was found.

`python -m scorecard --minutes 60` runs slices of each class as processes of their own, adds what they counted to a
state file after each, and writes docs/scorecard.md. A second call goes on where the first ended, with other seeds.
"""
