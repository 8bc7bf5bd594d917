"""`foldlog certificate`: the certificates that `foldlog serve --secure` made, made anew before it does so itself."""

from __future__ import annotations

from typing import Final

from foldlog.cli.confirmation import is_confirmed, yes_option
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.parsing import Arguments, LazyVerb, Noun, argument, command, switch
from foldlog.cli.tables import Outcome, format_option, show_outcomes
from foldlog.server.access.own_certificates import SecureFiles, renew_certificates

DESCRIPTION: Final = """\
The certificates of foldlog serve --secure. The broker renews its own a month before its end, and clients notice
nothing: the authority stays."""

NOUN: Final = Noun(
    {"renew": LazyVerb("access.certificate:renew", "renew the broker's certificate, or the authority too")},
    DESCRIPTION,
)

RENEW: Final = """\
A broker that serves the directory uses the new certificate within seconds. Use --authority if the directory was stolen,
or its ca-key.pem is lost: clients then cannot connect until they have the new ca.pem."""


@command(
    argument("dir", "DIR", "the directory served with --secure"),
    switch("--authority", told="also renew the authority: every client then needs the new ca.pem"),
    yes_option(),
    format_option(),
    more=RENEW,
)
def renew(arguments: Arguments) -> int:
    files = SecureFiles(arguments.dir)
    question = "make a new authority? clients cannot connect until they have its ca.pem"
    if arguments.authority and not is_confirmed(arguments, question):
        return FAILED
    until, names = renew_certificates(files, with_authority=arguments.authority)
    whose = "authority and certificate" if arguments.authority else "certificate"
    told = f"{whose} of {arguments.dir}: made, good until {until:%Y-%m-%d} for {', '.join(names)}"
    given = f"; give clients {files.ca}" if arguments.authority else ""
    facts = {"directory": arguments.dir, "until": f"{until:%Y-%m-%dT%H:%M:%SZ}", "names": names, "ca": files.ca}
    show_outcomes(arguments, [Outcome(told + given, {**facts, "status": "made"})])
    return DONE
