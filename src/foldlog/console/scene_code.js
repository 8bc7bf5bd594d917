// What runs, as it stands in server/console/scene_log.py and queue.py (a test compares them), and which lines of it each
// step runs. Lines are told by a word of theirs; a step ends at its last one.

export const CODE = {
  append: {
    name: "Log.append",
    what: "a producer adds a record at the right end",
    text: `def append(self, value: str) -> int:
    offset = self._write(value)  # at the right end, never over another
    self._wait_until_durable(offset)  # on disk before anybody is told
    return offset`,
  },
  read: {
    name: "Log.read",
    what: "a group reads at its own bookmark",
    text: `def read(self, group: str, handle: Handle) -> Record | None:
    offset = self.bookmark(group)  # where this group stands
    record = self.record_at(offset)  # a look: the log stays as it is
    if record is None:
        return None  # it has caught up; more will come
    handle(record)  # a crash in here leaves the bookmark
    self._commit(group, record.offset + 1)  # all that moves
    return record`,
  },
  dequeue: {
    name: "Queue.dequeue",
    what: "whoever asks first takes the head",
    text: `def dequeue(self) -> Item | None:
    if not self._items:
        return None  # nothing is left for a second reader
    return self._items.pop(0)  # out of the queue, for everybody`,
  },
};

const READ = ["self.bookmark", "record_at", "if record"];

/** The code, the lines of it that ran, and whether the reader died there. */
export function ran(did) {
  const crashed = did.verb === "crash";
  if (did.verb === "append") return { code: "append", lines: ["_write", "_wait", "return offset"] };
  if (did.side === "log") return { code: "read", lines: [...READ, ...(!did.record ? ["return None"] : crashed ? ["handle(record)"] : ["handle(record)", "_commit", "return record"])], crashed };
  return { code: "dequeue", lines: ["if not", did.record ? "pop(0)" : "return None"], crashed };
}
