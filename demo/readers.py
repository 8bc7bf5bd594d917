"""Eight payments, three readers, and nobody disturbs anybody.

A log is not a queue: reading removes nothing, every reader keeps its own place, and the writer never waits for any of
them. Everything printed here was read back from the log, and every claim is checked before it is printed.

Run it with `python demo/readers.py`; `make demo` shows the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import foldlog

TOPIC = "payments"


def payment(number: int, amount_paise: int = 19_999_00) -> dict[str, object]:
    return {"tx_id": f"tx_{number:03d}", "amount_paise": amount_paise, "merchant": "corner-shop"}


def show(record: foldlog.Record) -> None:
    fields = record.json()
    print(f"    offset {record.offset}  {fields['tx_id']}  {fields['amount_paise'] / 100:>10,.2f} rupees")


def claim(text: str, holds: bool) -> None:
    """Print a claim only if it is true."""
    if not holds:
        raise SystemExit(f"  ✗ {text}")
    print(f"  ✓ {text}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="foldlog-demo-") as directory, foldlog.open(directory) as log:
        log.create_topic(TOPIC, partitions=1)

        print("The producer appends eight payments; each is on disk when append returns.")
        for number in range(8):
            log.append(TOPIC, payment(number), key=f"tx_{number:03d}")
        claim("the log holds offsets 0 to 7", log.offsets(TOPIC) == {0: (0, 8)})

        print("\nReader A reads from the start (a backfill).")
        read_by_a = list(log.read(TOPIC, 0, start=0))
        for record in read_by_a:
            show(record)
        claim("A has seen all eight, in the order they were written", [r.offset for r in read_by_a] == list(range(8)))

        print("\nReader B takes three, remembers its place, and pauses.")
        read_by_b = list(log.read(TOPIC, 0, start=0, max_records=3))
        for record in read_by_b:
            show(record)
        place_of_b = read_by_b[-1].offset + 1
        claim(f"B's bookmark is its own: {place_of_b}", place_of_b == 3)

        print("\nReader C tails: only what is written from now on.")
        reader_c = log.read(TOPIC, 0, start="end", follow=True)
        log.append(TOPIC, payment(8, 50_000_00), key="tx_008")
        ninth = next(iter(reader_c))
        show(ninth)
        claim("C has seen the ninth payment and none before it", ninth.offset == 8)

        print("\nReader B goes on where it stopped.")
        read_by_b += log.read(TOPIC, 0, start=place_of_b)
        for record in read_by_b[3:]:
            show(record)
        claim("B has missed nothing and seen nothing twice", [r.offset for r in read_by_b] == list(range(9)))

        print("\nAnd nobody disturbed anybody.")
        claim("reading removed nothing: the log holds offsets 0 to 8", log.offsets(TOPIC) == {0: (0, 9)})
        again = list(log.read(TOPIC, 0, start=0))
        claim("A reads again and finds the same eight, byte for byte, and the ninth", again[:8] == read_by_a)
        claim("a new reader, today or in a year, gets the whole history", again == read_by_b)

        files = sorted(Path(directory, f"{TOPIC}-0").glob("*.log"))
        size_bytes = sum(file.stat().st_size for file in files)
        print(f"\nOn disk: {', '.join(f'{TOPIC}-0/{file.name}' for file in files)}, {size_bytes} bytes.")


if __name__ == "__main__":
    main()
