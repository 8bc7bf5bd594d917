"""One process, one seed: a broker on a virtual disk, its clients and a fold, in virtual time, with faults in between.

The fault model:

1. The power goes after any file operation, also in the middle of an append, a recovery or a change of topics. On disk
   is then what `foldlog.testing.power_loss` allows: unsynced sectors kept, lost, earlier or torn, unsynced names there
   or not.
2. The broker's process dies between any two requests: what was written is in the files, synced or not.
3. A sync fails, and what it was to write is lost or not. A write fails for want of space, with nothing or half of it
   written. Whoever runs the broker starts it again when a partition is poisoned.
4. Messages are late, lost or come twice: requests and answers, in any order. A client that hears nothing asks again.
5. Clients die, and another of the same name begins; or does so while the first still runs, a zombie by then.
6. The fold's process dies between reading and storing, and two of them run at once.
7. Nothing that is on disk and not being written changes, and nobody lies: no bit rot, no drive that loses what it said
   is synced, no client that breaks the protocol. Threads are not simulated: who waits for a sync does it.

What runs is the code of the log itself: the broker with its transactions and committed offsets, partitions with their
recovery, the view with its bookmark. The clients are the simulator's own. What they were told is judged by
`scorecard.histories.rules`, which knows nothing of the log. A seed gives the same run each time, to the last byte of
its trace; `python -m scorecard.simulator --seed N` runs it, and shrinks it if it fails.
"""
