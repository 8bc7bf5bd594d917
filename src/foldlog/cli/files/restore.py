"""`foldlog restore`: a data directory from a store of segments."""

from __future__ import annotations

from typing import Final

from foldlog.broker.restore import restore
from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import say
from foldlog.cli.parsing import Arguments, argument, command, option, switch
from foldlog.cli.wording import counted
from foldlog.files.posix import PosixFiles

DESCRIPTION: Final = """\
Makes the directory DIR from the store at URL alone, which serve --tier has filled: topics with their settings, records
at their offsets, leader epochs, and what producers have sent. DIR must be empty, or not there; it appears when it is
whole.

The store has the sealed segments of topics with remote.storage.enable=true. It has no record after the last of them, no
other topic, and no group.

Every segment is downloaded, and the directory stands alone. With --tiered the segments stay in the store, and the
directory takes its place as their writer: for a machine that is gone, not for a trial beside one that runs."""


@command(
    argument("url", "URL", "the store, such as s3://bucket/prefix, as --tier named it"),
    argument("dir", "DIR", "the directory to make"),
    switch("--tiered", told="leave the segments in the store, and go on with it"),
    option("--topic", metavar="T", told="only this topic"),
    description=DESCRIPTION,
)
def run(arguments: Arguments) -> int:
    files = PosixFiles()
    path = files.from_root(arguments.dir.rstrip("/") or "/")
    made = 0
    for one in restore(arguments.url, files, path, stays=arguments.tiered, topic=arguments.topic):
        made += 1
        say(
            f"{one.topic}-{one.number}: offsets {one.start_offset} to {one.end_offset},"
            f" {counted(one.segments, 'segment')}, {counted(one.size_bytes, 'byte')}"
        )
    say(f"{arguments.dir} is whole: {counted(made, 'partition')} of {arguments.url}")
    return DONE
