"""The index and the modules agree, and nothing needs kio to use them.

That they are what Apache Kafka's schemas say is seen in tests/clusters/test_messages.py, which needs its jars.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

from foldlog.wire.messages import APIS, NAMES


def test_every_api_that_is_served_has_a_module_and_a_name() -> None:
    for key, api in APIS.items():
        module = importlib.import_module(f"foldlog.wire.messages.{api.module}")
        for message in (module.REQUEST, module.RESPONSE):
            assert (key, (api.first, api.last)) == (message.API_KEY, message.VERSIONS)
        assert api.flexible_from == module.REQUEST.FLEXIBLE_FROM
        assert NAMES[key].lower() == api.module.replace("_", "")


def test_the_codec_works_without_kio_and_loads_one_api_at_a_time() -> None:
    code = (
        "import sys; sys.modules['kio'] = None\n"
        "from foldlog.wire import frames, error_codes\n"
        "from foldlog.wire.codec import decode, encode\n"
        "request = frames.request_class(12)\n"
        "assert decode(request, 4, encode(request(group_id='g'), 4)).group_id == 'g'\n"
        "print(sorted(name for name in sys.modules if name.startswith('foldlog.wire.messages.')))\n"
        "print(sorted(set(sys.modules) & {'asyncio', 'socket', 'uvloop', 'pyarrow'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["['foldlog.wire.messages.heartbeat']", "[]"]
