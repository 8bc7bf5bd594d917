"""Java's tools at `foldlog serve --secure`: the lines that it prints for Java are all that they need."""

from __future__ import annotations

import re
from pathlib import Path

from clusters.kafka_tools import ToolDesk

from cli.serving import ANY_PORT, serving
from cli.test_serve_secure import java_properties, printed


def test_the_printed_settings_let_javas_tools_in_and_a_wrong_password_keeps_them_out(
    tool_desk: ToolDesk, tmp_path: Path
) -> None:
    with serving(str(tmp_path / "data"), "--secure", *ANY_PORT, "--create", "orders") as broker:
        config = Path(java_properties(printed(broker), tmp_path / "client.properties"))
        text = config.read_text()
        assert "security.protocol=SASL_SSL\n" in text
        assert "sasl.mechanism=SCRAM-SHA-512\n" in text
        at = ("--bootstrap-server", f"127.0.0.1:{broker.address[1]}", "--command-config", config)

        written = tool_desk.run("kafka-console-producer", *at, "--topic", "orders", text="one\ntwo\n")
        assert written.returncode == 0, written
        reading = ("--topic", "orders", "--from-beginning", "--max-messages", 2, "--timeout-ms", 60_000)
        assert tool_desk.run("kafka-console-consumer", *at, *reading).stdout == "one\ntwo\n"
        assert tool_desk.run("kafka-topics", *at, "--list", "--exclude-internal").stdout.split() == ["orders"]

        changed = ("--alter", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=of-bob]")
        made = tool_desk.run("kafka-configs", *at, *changed, "--entity-type", "users", "--entity-name", "bob")
        assert made.returncode == 0, made
        as_bob = re.sub(r'username="[^"]*" password="[^"]*"', 'username="bob" password="of-bob"', text)
        assert as_bob != text
        config.write_text(as_bob)
        refused = tool_desk.run("kafka-topics", *at, "--describe", "--topic", "orders")
        assert refused.returncode != 0, "who has no ACL sees no topic"
        assert "Authentication" not in refused.stdout + refused.stderr

        config.write_text(as_bob.replace("of-bob", "wrong"))
        kept_out = tool_desk.run("kafka-topics", *at, "--list")
        assert kept_out.returncode != 0
        assert "SaslAuthenticationException" in kept_out.stdout + kept_out.stderr
        assert broker.end() == 0
