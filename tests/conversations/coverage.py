"""Versions of APIs that no conversation can have in both ways, with the reason."""

from __future__ import annotations

from typing import Final

_NEVER_TAKEN: Final = {
    "DeleteAcls": (range(1, 4), "there is no authorizer"),
    "DescribeAcls": (range(1, 4), "there is no authorizer"),
    "SaslAuthenticate": (range(3), "nobody logs in at this listener"),
    "SaslHandshake": (range(2), "nobody logs in at this listener"),
}

NEVER_TAKEN: Final = {f"{api} {version}": why for api, (versions, why) in _NEVER_TAKEN.items() for version in versions}
"""Every request is refused here; `tests/clusters/test_access_apache.py` has brokers that take them."""

_NEVER_REFUSED: Final = {
    "ApiVersions": (range(3), "a client does not say its name yet"),
    "DescribeCluster": (range(1), "a client does not say which endpoints it means yet"),
    "DescribeGroups": (range(6), "a group that is not there is Dead, which is no error"),
    "DescribeLogDirs": (range(1, 6), "what is not there is left out"),
    "FindCoordinator": (range(1), "every name has a coordinator, and there are no kinds of names yet"),
    "ListConfigResources": (range(1), "nothing is asked for"),
    "ListGroups": (range(6), "what does not match is left out"),
    "ListPartitionReassignments": (range(1), "what is not there is left out"),
    "ListTransactions": (range(2), "what does not match is left out"),
    "OffsetFetch": (range(1, 7), "what is not committed is at -1, and unstable offsets can be refused from 7 on"),
}

NEVER_REFUSED: Final = {
    f"{api} {version}": why for api, (versions, why) in _NEVER_REFUSED.items() for version in versions
}
"""No request that can be read is refused: only one that is cut off, in `requests_that_are_cut_off`."""
